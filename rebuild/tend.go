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
	f := n.newFlight(ctx, k, false)
	defer n.running.end(f.ticket)
	f.hold(c)
	m := c.Meta()
	now := n.clock.Now()
	early := now < m.Fresh && n.Sound(m, now)
	switch {
	case n.server.link == nil:
		f.refreshAlone(m, early)
		return
	case early:
		f.refreshEarly(m)
		return
	}
	asks := m.At(now) == Stale
	s, err := f.look() // of a stale copy this asks for the lease
	if err == nil && !asks && s.due() {
		s, err = f.askInBackground()
	}
	if err != nil {
		n.noteRedis(k, err)
		f.refreshAlone(m, false)
		return
	}
	f.settle(m, s, staleRefresh)
}

// due tells that a value is stale and that nobody sees to it.
func (s sight) due() bool {
	return s.lease == nil && (s.view.State == Stale || s.view.State == IfError) && !s.view.Held && !s.view.Backoff
}

// settle does what the entry turned out to need, and lets the copy that is held rest.
func (f *flight) settle(m *Meta, s sight, why cause) {
	n := f.n
	now := n.clock.Now()
	switch state := s.view.State; {
	case s.lease != nil:
		n.loadInBackground(f.ctx, m, f.loadFor(s, why), s.slot)
	case (state == Gone || state == Pass) && m.Identity == Identity{}: // it was never there
		m.restFor(now, time.Duration(m.Believed-now))
	case state == Gone || state == Pass: // nothing old is served for it any more
		n.running.keep(f.ticket, func() { n.values.Drop(f.key) })
	case state == Fresh || state == NotFound:
		n.running.keep(f.ticket, func() { n.values.Keep(f.key, s.copy) })
	case s.view.Backoff:
		m.restFor(now, s.backoff())
	default:
		m.restHeld(now)
	}
}

// refreshAlone loads without a lease while Redis is away, unless the copy is good still, or has
// been replaced while Redis was being waited for. Early, it loads though the copy is good.
func (f *flight) refreshAlone(m *Meta, early bool) {
	n := f.n
	now := n.clock.Now()
	if c := n.values.Lookup(f.key); c != nil && c.Meta() != m {
		return
	}
	if !early && m.At(now) == Fresh && n.Believes(m, now) || n.running.join(f.key.Text) != nil {
		m.restHeld(now)
		return
	}
	if e, ok := n.failed.recall(f.key.Text); ok {
		m.restFor(now, e.RetryAfter)
		return
	}
	slot, ok := n.spare(f.key)
	if !ok {
		m.restHeld(now)
		return
	}
	why := staleRefresh
	if early {
		why = earlyRefresh
	}
	n.loadInBackground(f.ctx, m, n.newLoad(f.key, nil, f.base(sight{}), why), slot)
}

// loadInBackground runs l to its end and then lets the copy rest: until the end of the back-off
// if it failed.
func (n *Node) loadInBackground(ctx context.Context, m *Meta, l *load, slot func()) {
	l, err := n.start(ctx, l, slot)
	if err != nil {
		return
	}
	<-l.done
	pause := firstPause
	if e, ok := n.failed.recall(l.key.Text); ok {
		pause = e.RetryAfter
	}
	m.restFor(n.clock.Now(), pause)
}
