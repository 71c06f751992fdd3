package rebuild

import (
	"context"
	"errors"
	"time"
)

// errServeStale ends a flight with the stale value at hand.
var errServeStale = errors.New("serve what is at hand")

// acquire asks for the lease. The bulkhead's slot is taken first: a lease that waits for a
// slot would hold up the fleet.
func (f *flight) acquire(v Verdict, mode Mode) (sight, error) {
	slot, err := f.slot(v)
	if err != nil {
		return sight{}, err
	}
	s, err := f.ask(mode)
	if s.lease == nil {
		slot()
	}
	s.slot = slot
	return s, err
}

// askInBackground asks for the lease of a load that nobody will wait for, if there is a slot for
// such a load and none is running; else it only looks.
func (f *flight) askInBackground() (sight, error) {
	n := f.n
	if n.running.join(f.key.Text) != nil {
		return f.ask(Look)
	}
	slot, ok := n.slots.spare()
	if !ok {
		n.Counts.Dropped.Add(1)
		return f.ask(Look)
	}
	s, err := f.ask(Try)
	if s.lease == nil {
		slot()
	}
	s.slot = slot
	return s, err
}

// slot waits for a slot as long as a load may take, or with something stale at hand for the
// grace. A load inside a load bypasses the bulkhead: it holds a slot already.
func (f *flight) slot(v Verdict) (giveBack func(), err error) {
	n := f.n
	if nested(f.ctx) {
		return func() {}, nil
	}
	patience, refusal := n.policy.LoadTimeout, error(ErrOverloaded)
	if v.Grace {
		patience, refusal = grace, errServeStale
	}
	ctx, cancel := context.WithTimeout(n.life.ctx, patience)
	defer cancel()
	giveBack, err = n.slots.take(ctx)
	switch {
	case err == nil:
		return giveBack, nil
	case n.life.ended():
		return nil, ErrClosed
	}
	return nil, refusal
}

// lead loads under the lease that was granted. What may be served meanwhile is.
func (f *flight) lead(s sight, v Verdict) (Answer, error) {
	n := f.n
	l := n.newLoad(f.key, s.lease)
	if v.Deed == Serve {
		a := f.serve(s, Verdict{Deed: Serve})
		m := s.copy.Meta()
		m.claim(n.clock.Now())
		if !n.life.run(func() { n.loadInBackground(f.ctx, m, l, s.slot) }) {
			s.slot()
			n.giveUp(f.ctx, l)
		}
		return a, nil
	}
	l.budget, l.refresh = f.budget, f.refresh
	l, err := n.start(f.ctx, l, s.slot, false)
	if err != nil {
		return Answer{}, err
	}
	return f.await(l, s, v)
}

// await waits for a load of this node.
func (f *flight) await(l *load, s sight, v Verdict) (Answer, error) {
	var late <-chan time.Time
	if v.Grace {
		t := time.NewTimer(grace - time.Duration(f.n.clock.Now()-l.began))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-l.done:
	case <-late:
		return f.serveLate(s.copy, nil), nil
	}
	if l.err != nil && v.Grace {
		return f.serveLate(s.copy, l.err), nil
	}
	return l.answer()
}

// beside loads without a lease, one load per node, what goes into no entry. It looks for what this
// node knows before and after it waits for a slot.
func (f *flight) beside(s sight, v Verdict) (Answer, error) {
	n := f.n
	if answer := f.known(s, v); answer != nil {
		return answer()
	}
	slot, err := f.slot(v)
	switch {
	case errors.Is(err, errServeStale):
		return f.serveLate(s.copy, nil), nil
	case err != nil:
		return Answer{}, err
	}
	if answer := f.known(s, v); answer != nil {
		slot()
		return answer()
	}
	l, err := n.start(f.ctx, n.newLoad(f.key, nil), slot, false)
	if err != nil {
		return Answer{}, err
	}
	return f.await(l, s, v)
}

// known answers by a load that this node is running, or by a failure that it remembers; nil if
// there is neither.
func (f *flight) known(s sight, v Verdict) func() (Answer, error) {
	if l := f.n.running.join(f.key.Text); l != nil {
		return func() (Answer, error) { return f.await(l, s, v) }
	}
	if e := f.n.Failure(f.key.Text); e != nil {
		return func() (Answer, error) {
			f.n.Counts.Backoffs.Add(1)
			return Answer{}, e
		}
	}
	return nil
}
