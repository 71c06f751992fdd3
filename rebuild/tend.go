package rebuild

import (
	"context"
	"time"
)

// Tend sees in the background to a copy that a hit has found stale, or soon not believed any
// more: it is verified, or refreshed by a load that nobody waits for. However many hits ask,
// one goroutine does it, and then lets it rest.
func (n *Node) Tend(ctx context.Context, k Key, c Copy) {
	m := c.Meta()
	if !m.claim(n.clock.Now()) {
		return
	}
	select {
	case n.jobs <- struct{}{}:
	default:
		n.Counts.Dropped.Add(1)
		m.restFor(n.clock.Now(), firstPause)
		return
	}
	ctx = context.WithoutCancel(ctx)
	running := n.life.run(func() {
		defer func() { <-n.jobs }()
		n.tend(ctx, k, c)
	})
	if !running {
		<-n.jobs
	}
}

func (n *Node) tend(ctx context.Context, k Key, c Copy) {
	f := n.newFlight(ctx, k)
	defer n.running.end(f.ticket)
	f.held = c
	m := c.Meta()
	switch state := m.At(n.clock.Now()); {
	case n.server.link == nil:
		f.refreshAlone(m)
	case state == Fresh || state == NotFound:
		f.verify(m)
	default:
		f.refresh(m)
	}
}

// verify asks whether a copy is still what Redis holds.
func (f *flight) verify(m *Meta) {
	s, err := f.look()
	switch {
	case err != nil:
		f.n.noteRedis(f.key, err)
		f.refreshAlone(m)
	case s.copy != nil:
		f.n.running.keep(f.ticket, func() { f.n.values.Keep(f.key, s.copy) })
		if s.view.State == Stale && !s.view.Held && !s.view.Backoff {
			f.refresh(s.copy.Meta())
		}
	default: // gone, or being loaded: the next caller whose copy is not believed will see
		m.restFor(f.n.clock.Now(), lastPause)
	}
}

// refresh loads under the lease, if nobody else holds it and there is a slot.
func (f *flight) refresh(m *Meta) {
	n := f.n
	s, err := f.askInBackground()
	now := n.clock.Now()
	switch {
	case err != nil:
		n.noteRedis(f.key, err)
		f.refreshAlone(m)
	case s.lease != nil:
		f.loadInBackground(m, n.newLoad(f.key, s.lease), s.slot)
	case s.view.State == Pass:
		n.running.keep(f.ticket, func() { n.values.Drop(f.key) }) // nothing old is served for it
	case s.view.Backoff:
		m.restFor(now, time.Duration(s.entry.RetryAfter.micros()-s.now)*time.Microsecond)
	case s.copy != nil && s.view.State != Stale:
		n.running.keep(f.ticket, func() { n.values.Keep(f.key, s.copy) })
	default:
		m.restHeld(now)
	}
}

// refreshAlone loads without a lease while Redis is away, unless the copy is good still.
func (f *flight) refreshAlone(m *Meta) {
	n := f.n
	now := n.clock.Now()
	if now < m.Fresh && now < m.Believed {
		m.restHeld(now)
		return
	}
	if e, ok := n.failed.recall(f.key.Text); ok {
		m.restFor(now, e.RetryAfter)
		return
	}
	slot, ok := n.slots.spare()
	if !ok || n.running.join(f.key.Text) != nil {
		if ok {
			slot()
		} else {
			n.Counts.Dropped.Add(1)
		}
		m.restHeld(now)
		return
	}
	f.loadInBackground(m, n.newLoad(f.key, nil), slot)
}

// loadInBackground runs l and lets the copy rest according to how it ended.
func (f *flight) loadInBackground(m *Meta, l *load, slot func()) {
	n := f.n
	l, err := n.start(f.ctx, l, slot, true)
	if err != nil {
		return
	}
	<-l.done
	pause := firstPause
	if e, ok := n.failed.recall(f.key.Text); ok {
		pause = e.RetryAfter
	}
	m.restFor(n.clock.Now(), pause)
}
