package rebuild

import (
	"context"
	"errors"
	"time"
)

// These end a flight with the stale value at hand.
var (
	errNoSlot = errors.New("no slot: serve what is at hand")
	errSlow   = errors.New("the holder is slow: serve what is at hand")
)

// errEnded tells a flight that the load it waited for began before the end of a tag that it turned out to
// carry, and the flight itself after that: it flies again.
var errEnded = errors.New("a tag of the value has ended")

// acquire asks for the lease. The bulkhead's slot is taken first: a lease that waits for a
// slot would hold up the fleet.
func (f *flight) acquire(v Verdict) (sight, error) {
	slot, err := f.slot(v)
	switch {
	case err != nil:
		return sight{}, err
	case f.n.life.ended(): // Close has freed the slot, and gives leases back once
		slot()
		return sight{}, ErrClosed
	}
	s, err := f.ask(Try)
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
	slot, ok := n.spare(f.key)
	if !ok {
		return f.ask(Look)
	}
	s, err := f.ask(Try)
	if s.lease == nil {
		slot()
	}
	s.slot = slot
	return s, err
}

// slot waits for a slot as long as a load may take and somebody waits for it, or with something stale
// at hand for the grace. A load inside a load bypasses the bulkhead: it holds a slot already.
func (f *flight) slot(v Verdict) (giveBack func(), err error) {
	n := f.n
	patience, refusal := n.policy.LoadTimeout, error(ErrOverloaded)
	if v.Grace {
		refusal = errNoSlot
	}
	switch err := n.stuck.bars(f.key.Text); {
	case err != nil && v.Grace:
		return nil, refusal
	case err != nil:
		return nil, err
	case nested(f.ctx):
		return func() {}, nil
	}
	if v.Grace && !v.Patient {
		patience = grace
	}
	ctx, cancel := context.WithTimeout(n.life.ctx, patience)
	defer cancel()
	if f.gone != nil {
		defer context.AfterFunc(f.gone, cancel)()
	}
	giveBack, err = n.slots.take(ctx)
	switch {
	case err == nil:
		return giveBack, nil
	case n.life.ended():
		return nil, ErrClosed
	case f.gone != nil && f.gone.Err() != nil:
		return nil, errDeserted
	}
	return nil, refusal
}

// lead loads under the lease that was granted. What may be served meanwhile is.
func (f *flight) lead(s sight, v Verdict) (Answer, error) {
	n := f.n
	l := f.loadFor(s, called)
	if v.Deed == Serve {
		l.cause = staleRefresh
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
	l, err := n.start(f.ctx, l, s.slot)
	if err != nil {
		return Answer{}, err
	}
	return f.await(l, s, v)
}

// loadFor is a load under the lease that s has brought.
func (f *flight) loadFor(s sight, why cause) *load {
	l := f.n.newLoad(f.key, s.lease, f.base(s), why)
	l.anew = s.over
	return l
}

// base is the value that a load of this key replaces: the one in the entry, as far as this node
// holds it; where there is none, what this node has that never was in Redis.
func (f *flight) base(s sight) Copy {
	if f.held == nil || f.held.Meta().Kind != KindValue || s.entry.Kind != 0 && s.entry.Identity != f.held.Meta().Identity {
		return nil
	}
	return f.held
}

// await waits for a load of this node.
func (f *flight) await(l *load, s sight, v Verdict) (Answer, error) {
	var late <-chan time.Time
	if v.Grace && !v.Patient {
		t := time.NewTimer(grace - time.Duration(f.n.clock.Now()-l.began))
		defer t.Stop()
		late = t.C
	}
	select {
	case <-l.done:
	case <-late:
		if a, err := f.serveLate(s.copy, nil, errSlow); err == nil {
			return a, nil
		}
		<-l.done
	}
	switch {
	case l.ended && f.ends > l.ends:
		return Answer{}, errEnded
	case v.Grace && l.err != nil:
		return f.serveLate(s.copy, l.err, l.err)
	case v.Grace && l.outdated: // what is at hand is newer
		if a, err := f.serveLate(s.copy, errOlderRow, errOlderRow); err == nil {
			return a, nil
		}
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
	case errors.Is(err, errNoSlot):
		return f.serveLate(s.copy, nil, ErrOverloaded)
	case err != nil:
		return Answer{}, err
	}
	if answer := f.known(s, v); answer != nil {
		slot()
		return answer()
	}
	l := n.newLoad(f.key, nil, f.base(s), called)
	l.private = f.want.NoStore
	l, err = n.start(f.ctx, l, slot)
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
			if v.Grace {
				return f.serveLate(s.copy, e, e)
			}
			return Answer{}, e
		}
	}
	return nil
}
