package rebuild

import (
	"errors"
)

// alone goes on without Redis, because there is none or it failed with why: with this node's
// own copy as far as its windows go, with the process's own memory of failures, and with one
// load per key. Nothing is written.
func (f *flight) alone(why error) (Answer, error) {
	n := f.n
	if why != nil && !errors.Is(why, errAlone) {
		n.noteRedis(f.key, why)
	}
	if n.life.ended() {
		return Answer{}, ErrClosed
	}
	s := f.recall()
	switch v := Decide(s.view, f.onlyFresh); v.Deed {
	case Serve:
		return f.serveAlone(s, why), nil
	case Refuse:
		n.Counts.Backoffs.Add(1)
		return Answer{}, n.Failure(f.key.Text)
	default:
		return f.beside(s, v)
	}
}

// recall is what this node knows of the entry by itself.
func (f *flight) recall() (s sight) {
	if f.held != nil {
		s.copy = f.held
		s.view.State = f.held.Meta().At(f.n.clock.Now())
	}
	s.view.Backoff = f.n.Failure(f.key.Text) != nil
	return s
}

// serveAlone serves this node's copy, and sees to a refresh where it is stale or not believed
// any more: at most one each LocalTTL, since what that brings is believed again.
func (f *flight) serveAlone(s sight, why error) Answer {
	n, m := f.n, s.copy.Meta()
	a := Answer{Copy: s.copy, Source: Local, State: s.view.State}
	if a.State == Stale || a.State == IfError {
		a.Err = why
		if e := n.Failure(f.key.Text); e != nil {
			a.Err = e
		}
	}
	if n.clock.Now() >= min(m.Believed, m.Fresh) && !s.view.Backoff {
		n.Tend(f.ctx, f.key, s.copy)
	}
	return a
}

// noteRedis counts that a call went on without Redis. What is Redis's own answer, not silence,
// is worth a line each time: it does not pass by itself.
func (n *Node) noteRedis(k Key, why error) {
	n.Counts.RedisErrors.Add(1)
	if errors.Is(why, errForeign) {
		n.policy.Logger.Error("levee: the key holds another Redis type and is left alone", "key", k.Redis, "error", why)
	}
}
