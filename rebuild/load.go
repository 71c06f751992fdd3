package rebuild

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/loader"
	"github.com/levee-cache/levee/lock"
)

// load is one call of the loader and what becomes of it.
type load struct {
	key     Key
	lease   *lock.Claim // nil: the value is kept by this node only
	base    Copy        // what it replaces, or nil
	cause   cause
	refresh bool // may not be answered by a load that began before
	private bool // nobody joins it, and what it brings is kept nowhere
	anew    bool // what it replaces has been ended by its generations
	began   link.Instant
	space   int64  // the namespace's generation then
	ends    uint64 // how many tags had ended before it began
	ticket  *ticket
	budget  link.Budget

	done chan struct{}
	// copy and err are written once before done is closed and only read after it.
	copy     Copy
	err      error
	outdated bool // its row is older than the one that is stored
	ended    bool // so have tags that it carries, since it began

	shunned atomic.Int64 // a link.Instant: until then newcomers join the flights that wait for it all the same
}

// joinable tells whether nothing is known to have revoked l, nor may have unheard. A lease tells by its
// renewals; a load without one is believed as a copy would be.
func (n *Node) joinable(l *load) bool {
	return l.lease != nil || n.trusts(l.began, l.began.Add(min(unheardFor, n.policy.LocalTTL)), n.clock.Now())
}

// shun lets newcomers look at Redis rather than join those who wait for a load that may have been revoked.
// Where Redis is away they will join it all the same, so one looks as often as a copy would be verified.
func (n *Node) shun(k Key) {
	l := n.running.join(k.Text)
	if l == nil || n.joinable(l) {
		return
	}
	now, until := n.clock.Now(), l.shunned.Load()
	if int64(now) >= until && l.shunned.CompareAndSwap(until, int64(now.Add(min(unheardFor, n.policy.LocalTTL)))) {
		n.flights.forget(k)
	}
}

// cause is why a load runs.
type cause uint8

const (
	called       cause = iota // somebody waits for it
	staleRefresh              // nobody does: it replaces what is served stale
	earlyRefresh              // or what is still fresh
)

func (n *Node) newLoad(k Key, lease *lock.Claim, base Copy, why cause) *load {
	ends := n.tags.ends.Load() // before the instant: what is not counted yet will be found to have changed after it
	return &load{
		key:    k,
		lease:  lease,
		base:   base,
		cause:  why,
		began:  n.clock.Now(),
		space:  n.space.hard.Load(),
		ends:   ends,
		budget: n.budget(),
		done:   make(chan struct{}),
	}
}

func (l *load) answer() (Answer, error) {
	if l.err != nil {
		return Answer{}, l.err
	}
	state := Fresh
	if l.copy.Meta().Kind == KindNotFound {
		state = NotFound
	}
	return Answer{Copy: l.copy, Source: Loaded, State: state}, nil
}

// start runs l in a goroutine of its own and gives the slot back when the loader is done with.
// If a load of the key is running already, that one is returned, and l is not run.
func (n *Node) start(ctx context.Context, l *load, slot func()) (*load, error) {
	refuse := func() {
		slot()
		n.giveUp(ctx, l)
	}
	if !n.life.beginLoad(nested(ctx)) {
		refuse()
		return nil, ErrClosed
	}
	if !l.private {
		if running := n.running.lead(l); running != l {
			n.life.endLoad()
			refuse()
			return running, nil
		}
	}
	l.ticket = n.running.begin(l.key.Text, true)
	started := n.life.run(func() {
		defer n.life.endLoad()
		n.run(ctx, l, slot)
	})
	if !started {
		n.running.end(l.ticket)
		n.running.leave(l)
		n.life.endLoad()
		refuse()
		return nil, ErrClosed
	}
	return l, nil
}

// giveUp gives back the lease of a load that will not run.
func (n *Node) giveUp(ctx context.Context, l *load) {
	if l.lease != nil {
		n.giveBackLease(ctx, l.key, l.lease)
	}
}

func (n *Node) run(ctx context.Context, l *load, slot func()) {
	if l.lease != nil {
		stop := context.AfterFunc(l.lease.Context(), func() { n.leaseLost(l) })
		defer stop()
	}
	n.Counts.Loads.Add(1)
	switch l.cause {
	case earlyRefresh:
		n.Counts.Early.Add(1)
	case staleRefresh:
		n.Counts.Revalidated.Add(1)
	}
	o, err := n.call(n.inside(ctx, l.key, l.cause != called), l.key, l.base)
	slot()
	n.finish(ctx, l, o, err)
	n.running.end(l.ticket)
	n.running.leave(l)
	close(l.done)
}

// leaseLost closes the load to newcomers: what it brings may be older than what revoked it. It
// runs on for those who wait already; to stop it would starve a key that is deleted more often
// than it loads.
func (n *Node) leaseLost(l *load) {
	if context.Cause(l.lease.Context()) == lock.ErrReleased {
		return
	}
	n.Counts.LeasesLost.Add(1)
	n.running.leave(l)
	n.flights.forget(l.key)
}

// call runs the loader under LoadTimeout in a goroutine of its own, which a loader that ignores
// its context keeps; it is counted until it ends.
func (n *Node) call(ctx context.Context, k Key, base Copy) (Outcome, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, n.policy.LoadTimeout, ErrLoadTimeout)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(n.life.ctx, func() { end(ErrClosed) })()

	type result struct {
		Outcome
		err error
	}
	came := make(chan result, 1)
	var settled atomic.Bool // by the first of the two: the loader's return, or the leaving
	go n.values.Load(ctx, k, base, n.age(base), func(o Outcome, err error) {
		came <- result{o, err}
		if !settled.CompareAndSwap(false, true) {
			n.Counts.AbandonedNow.Add(-1)
			n.stuck.add(k.Text, -1)
		}
	})
	select {
	case r := <-came:
		return r.Outcome, whose(ctx, r.err)
	case <-ctx.Done():
	}
	if settled.CompareAndSwap(false, true) {
		n.Counts.Abandoned.Add(1)
		n.Counts.AbandonedNow.Add(1)
		n.stuck.add(k.Text, 1)
		return Outcome{}, context.Cause(ctx)
	}
	r := <-came
	return r.Outcome, whose(ctx, r.err)
}

func (n *Node) age(c Copy) time.Duration {
	if c == nil {
		return 0
	}
	return time.Duration(n.clock.Now() - c.Meta().Loaded)
}

// whose makes known why a loader that obeyed its context failed: our deadline, or our end.
func whose(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() == nil || errors.Is(err, loader.ErrNotFound):
		return err
	case errors.Is(err, ctx.Err()):
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), err)
}

// finish makes of the loader's outcome what is stored, kept and answered.
func (n *Node) finish(ctx context.Context, l *load, o Outcome, err error) {
	switch {
	case errors.Is(err, loader.ErrNotFound):
		n.store(ctx, l, Outcome{NoStore: o.NoStore, TTL: o.TTL, Tags: o.Tags})
	case err == nil:
		n.store(ctx, l, o)
	case errors.Is(err, ErrClosed): // this cache, or one that the load needs: no failure of the database
		l.err = err
		n.giveUp(ctx, l)
	default:
		n.fail(ctx, l, err)
	}
}

// fail remembers a failed load, here and in Redis.
func (n *Node) fail(ctx context.Context, l *load, err error) {
	n.Counts.LoadErrors.Add(1)
	l.err = err
	if n.running.valid(l.ticket) {
		n.failed.record(l.key.Text, err)
	}
	n.logFailure(l.key, err)
	switch {
	case l.lease == nil:
	case n.policy.Backoff == 0:
		n.conclude(ctx, l, scripts.release, 0)
	default:
		n.conclude(ctx, l, scripts.fail, n.failure(err)...)
	}
}

// logFailure also tells where a load panicked: of one that nobody waits for, nobody else is told.
// The loads of a batch share its panic, and its stack is told once.
func (n *Node) logFailure(k Key, err error) {
	if p, ok := errors.AsType[*loader.PanicError](err); ok && n.told.Swap(p) != p {
		n.policy.Logger.Error("levee: a load panicked", "key", k.Redis, "error", err, "stack", string(p.Stack))
		return
	}
	n.policy.Logger.Warn("levee: a load failed", "key", k.Redis, "error", err)
}
