package rebuild

import (
	"errors"
)

// alone goes on without Redis, because there is none or it failed with why: with this node's
// own copy as far as its windows go, with the process's own memory of failures, and with one
// load per key. Nothing is written.
func (f *flight) alone(why error) (Answer, error) {
	n := f.n
	n.noteRedis(f.key, why)
	if n.life.ended() {
		return Answer{}, ErrClosed
	}
	s := f.recall()
	if errors.Is(why, errAlone) && s.copy != nil && !n.Believes(s.copy.Meta(), n.clock.Now()) {
		s.view.State, s.copy, f.held = Gone, nil, nil // Redis is not away, and has shown something else
	}
	switch v := Decide(s.view, f.want.taste()); v.Deed {
	case Serve:
		return f.serveAlone(s, why), nil
	case Refuse:
		n.Counts.Backoffs.Add(1)
		return Answer{}, s.failure
	default:
		if f.want.spent {
			return Answer{}, errNothing
		}
		return f.beside(s, v)
	}
}

// recall is what this node knows of the entry by itself. It looks again: while Redis was being
// waited for, a load may have ended.
func (f *flight) recall() (s sight) {
	f.hold(f.n.values.Lookup(f.key))
	if f.held != nil {
		s.copy = f.held
		s.view.State = f.held.Meta().At(f.n.clock.Now())
	}
	s.failure = f.n.Failure(f.key.Text)
	s.view.Backoff = s.failure != nil
	return s
}

// serveAlone serves this node's copy, and sees to a refresh where it is stale or not believed
// any more: at most one each LocalTTL, since what that brings is believed again.
func (f *flight) serveAlone(s sight, why error) Answer {
	n, m := f.n, s.copy.Meta()
	a := Answer{Copy: s.copy, Source: Local, State: s.view.State}
	if a.State == Stale || a.State == IfError {
		a.Err = why
		if s.failure != nil {
			a.Err = s.failure
		}
	}
	if (n.clock.Now() >= m.Believed || a.State != Fresh && a.State != NotFound) && !s.view.Backoff && !f.want.NoStore {
		n.Tend(f.ctx, f.key, s.copy)
	}
	return a
}

// noteRedis counts that a call went on without Redis, if why says so. What is Redis's own answer,
// not silence, is worth a line each time: it does not pass by itself.
func (n *Node) noteRedis(k Key, why error) {
	if why == nil || errors.Is(why, errAlone) {
		return
	}
	n.Counts.RedisErrors.Add(1)
	if errors.Is(why, errForeign) {
		n.policy.Logger.Error("levee: the key holds another Redis type and is left alone", "key", k.Redis, "error", why)
	}
}
