package rebuild

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/loader"
)

// Node is one cache's part in rebuilding its entries: its flights, running loads and memory of
// failures. All methods are safe for concurrent use.
type Node struct {
	policy              Policy
	values              Values
	clock               *link.Clock
	server              server // its link is nil without Redis
	running             *running
	flights             flights
	inLine              turns
	slots               *slots
	stuck               *stuck
	jobs                chan struct{} // one token for each background job under way
	failed              *failures
	space               *generation
	tags                tags
	holds               holds
	retries             retries
	trust               *link.Trust  // in what this node holds
	tracked             *link.Trust  // the same, of changes by writers that are not ours; nil: not tracked
	stream              *link.Stream // nil: nodes do not tell each other
	sends               link.Publication
	deafen, closeStream func()
	tracking            *link.Tracking // nil: not tracked
	life                *life
	longest             atomic.Int64                      // a Duration, see lived
	told                atomic.Pointer[loader.PanicError] // the last one whose stack was logged

	// Counts are this node's counters; read them at any time.
	Counts Counts
}

// New makes a Node. Without a link it protects this process only. Close it before the link.
func New(l *link.Link, v Values, p Policy) *Node {
	clock := link.NewClock()
	if l != nil {
		clock = l.Clock
	}
	n := &Node{
		policy:  p,
		values:  v,
		clock:   clock,
		server:  server{link: l},
		running: newRunning(),
		slots:   newSlots(p.MaxLoads),
		stuck:   newStuck(p.MaxLoads),
		jobs:    make(chan struct{}, p.MaxLoads),
		failed:  newFailures(clock, p),
		tags:    tags{gone: never, unmet: fading[unmetChange]{life: p.LoadTimeout}},
		holds:   holds{fading[link.Instant]{life: p.HoldDown}},
		space:   newGeneration(p.News.Topic+"!", "", never),
		trust:   &link.Trust{},
		life:    newLife(),
	}
	if l == nil {
		n.trust = link.Always()
	}
	n.listen(p.News)
	return n
}

// Now is the current instant on the clock that Stamps are written in.
func (n *Node) Now() link.Instant { return n.clock.Now() }

// Source tells where an answer came from.
type Source uint8

const (
	Local  Source = iota // this node's memory
	Remote               // Redis
	Loaded               // a load, of this node or of one it waited for
)

// Answer is what a caller gets.
type Answer struct {
	Copy   Copy
	Source Source
	State  State
	Err    error // why a stale value was served
}

// Get answers for k: with what may be served, or with a load that all who ask share. ctx bounds
// the caller's wait and nothing else.
func (n *Node) Get(ctx context.Context, k Key, w Want) (Answer, error) {
	if err := n.admits(ctx, k); err != nil {
		return Answer{}, err
	}
	n.shun(k)
	if w.taste() != patiently {
		return n.share(ctx, k, w)
	}
	for {
		a, err := n.wait(ctx, k, w)
		if err != errDeserted {
			return a, err
		}
	}
}

// wait is for a patient caller. When his patience is over he is served what there is; if there is
// nothing, he waits on like anybody else.
func (n *Node) wait(ctx context.Context, k Key, w Want) (Answer, error) {
	s := n.flights.board(n.flight(ctx, k, w))
	defer s.leave()
	a, err := s.wait(ctx, w.Wait)
	if err != errImpatient {
		return a, err
	}
	a, err = n.share(ctx, k, w.hurried())
	switch {
	case err == errNothing:
		return s.wait(ctx, 0)
	case err == nil && (a.State == Stale || a.State == IfError):
		n.Counts.StaleOnError.Add(1)
	}
	return a, err
}

// share flies, or joins those who do and want the same.
func (n *Node) share(ctx context.Context, k Key, w Want) (Answer, error) {
	name, fly := n.flight(ctx, k, w)
	return n.flights.share(ctx, name, fly)
}

// flight is a read, and what it may be shared by. Who wants to see what Redis holds joins none that
// has begun already.
func (n *Node) flight(ctx context.Context, k Key, w Want) (name string, fly func(context.Context) (Answer, error)) {
	detached, name := context.WithoutCancel(ctx), n.flights.name(ctx, w, k)
	fly = func(gone context.Context) (Answer, error) { return n.fly(detached, gone, k, w) }
	if w.SkipLocal && n.server.link != nil {
		fly = n.inTurn(name, fly)
	}
	return name, fly
}

// admits refuses what could only wait for itself, and what comes too late.
func (n *Node) admits(ctx context.Context, k Key) error {
	switch {
	case n.life.ended():
		return ErrClosed
	case n.loading(ctx, k):
		return ErrRecursive
	}
	return ctx.Err()
}

// Close stops everything: waiting callers and running loads end with [ErrClosed], leases are
// given back within one RedisTimeout. It may be called at any time, and again.
func (n *Node) Close() {
	n.life.end()
	n.hearNothing()
	n.abandonRetries()
	n.failed.close()
	n.holds.close()
	n.tags.unmet.close()
}

// Shutdown begins no more loads, waits until none is running or ctx ends, and then closes.
func (n *Node) Shutdown(ctx context.Context) error {
	err := n.life.drain(ctx)
	n.Close()
	return err
}

// budget is what one operation may lose to Redis.
func (n *Node) budget() link.Budget { return link.Budget{Left: n.policy.RedisTimeout} }

// sleep waits for d, or less if the node is closed.
func (n *Node) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-n.life.done():
	}
}
