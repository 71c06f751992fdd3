package rebuild

import (
	"context"
	"sync"
)

// turns lets the flights of a name take turns: a caller may only share one that begins after the
// call, so at most one runs and one waits for it.
type turns struct {
	mu   sync.Mutex // guards last
	last map[string]chan struct{}
}

// take returns what to wait for, or nil, and what to call at the end.
func (t *turns) take(key string) (before <-chan struct{}, end func()) {
	mine := make(chan struct{})
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil {
		t.last = map[string]chan struct{}{}
	}
	before = t.last[key]
	t.last[key] = mine
	return before, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		close(mine)
		if t.last[key] == mine {
			delete(t.last, key)
		}
	}
}

// Refresh returns the result of a load that began after this call, of whichever node. It joins
// none that began before; a back-off is returned as such.
func (n *Node) Refresh(ctx context.Context, k Key) (Answer, error) {
	if err := n.admits(ctx, k); err != nil {
		return Answer{}, err
	}
	detached := context.WithoutCancel(ctx)
	name := lane(ctx) + "next:" + k.Text
	return n.flights.share(ctx, name, n.inTurn(name, func(context.Context) (Answer, error) {
		return n.renew(detached, k)
	}))
}

// inTurn is for flights that nobody joins who comes after their beginning.
func (n *Node) inTurn(name string, fly func(context.Context) (Answer, error)) func(context.Context) (Answer, error) {
	return func(gone context.Context) (Answer, error) {
		if !n.life.enter() {
			return Answer{}, ErrClosed
		}
		defer n.life.leave()
		before, end := n.inLine.take(name)
		defer end()
		if before != nil {
			select {
			case <-before:
			case <-n.life.done():
				return Answer{}, ErrClosed
			}
		}
		n.flights.group.Forget(name) // who comes now comes after the beginning
		return fly(gone)
	}
}

func (n *Node) renew(ctx context.Context, k Key) (Answer, error) {
	f := n.newFlight(ctx, k, true)
	defer n.running.end(f.ticket)
	a, err := f.renew()
	if err == nil {
		n.flights.forget(k) // what reads now under way bring may be older
		b := n.budget()
		turn := n.retries.begin()
		if n.tell(ctx, &b, k) != nil {
			n.retryLater(ctx, turn, nil, k)
		}
	}
	return a, err
}

// renew asks first with a bar that nothing reaches. What it learns by that fixes the bar: the
// lease that runs now, and the value that is there now, do not count.
func (f *flight) renew() (Answer, error) {
	if f.n.server.link == nil {
		return f.renewAlone()
	}
	f.bar = farthest
	s, err := f.acquire(Verdict{})
	if err == nil {
		f.bar = max(s.now, s.entry.Version+1, s.entry.Start+1)
	}
	for err == nil {
		v := Decide(View{State: s.view.State, Held: s.view.Held, Backoff: s.view.Backoff}, onlyFresh)
		switch {
		case s.lease != nil:
			return f.lead(s, Verdict{Deed: Load})
		case v.Deed == Serve:
			return f.serve(s, v), nil
		case v.Deed == Refuse:
			return Answer{}, f.refusal(s)
		case v.Deed == Await:
			s, err = f.wait(s, Verdict{Deed: Await})
		case v.Deed == Load:
			s, err = f.acquire(Verdict{})
		default:
			return f.renewAlone()
		}
	}
	if final(err) {
		return Answer{}, err
	}
	f.n.noteRedis(f.key, err)
	return f.renewAlone()
}

// renewAlone loads without a lease, after any load of this node that is running already. If that
// has failed, the key is left alone.
func (f *flight) renewAlone() (Answer, error) {
	n := f.n
	for {
		if l := n.running.join(f.key.Text); l != nil {
			<-l.done
			continue
		}
		if e := n.Failure(f.key.Text); e != nil {
			n.Counts.Backoffs.Add(1)
			return Answer{}, e
		}
		slot, err := f.slot(Verdict{})
		if err != nil {
			return Answer{}, err
		}
		if n.running.join(f.key.Text) != nil || n.Failure(f.key.Text) != nil {
			slot() // since it was waited for
			continue
		}
		f.hold(n.values.Lookup(f.key))
		mine := n.newLoad(f.key, nil, f.base(sight{}), called)
		l, err := n.start(f.ctx, mine, slot)
		switch {
		case err != nil:
			return Answer{}, err
		case l == mine:
			return f.await(l, sight{}, Verdict{})
		}
	}
}
