package rebuild

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/loader"
	"github.com/levee-cache/levee/lock"
)

// load is one call of the loader and what becomes of it.
type load struct {
	key     Key
	lease   *lock.Lease // nil: the value is kept by this node only
	refresh bool        // may not be answered by a load that began before
	began   link.Instant
	ticket  *ticket
	budget  link.Budget

	done chan struct{}
	// copy and err are written once before done is closed and only read after it.
	copy Copy
	err  error
}

func (n *Node) newLoad(k Key, lease *lock.Lease) *load {
	return &load{
		key:    k,
		lease:  lease,
		began:  n.clock.Now(),
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
func (n *Node) start(ctx context.Context, l *load, slot func(), background bool) (*load, error) {
	refuse := func() {
		slot()
		n.giveUp(ctx, l)
	}
	if !n.life.beginLoad() {
		refuse()
		return nil, ErrClosed
	}
	if running := n.running.lead(l); running != l {
		n.life.endLoad()
		refuse()
		return running, nil
	}
	l.ticket = n.running.begin(l.key.Text, true)
	started := n.life.run(func() {
		defer n.life.endLoad()
		n.run(ctx, l, slot, background)
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
	if l.lease == nil {
		return
	}
	l.lease.End()
	n.release(ctx, l.key, l.lease.Token, Micros(l.lease.Start), 0)
}

func (n *Node) run(ctx context.Context, l *load, slot func(), background bool) {
	if l.lease != nil {
		stop := context.AfterFunc(l.lease.Context(), func() { n.leaseLost(l) })
		defer stop()
	}
	n.Counts.Loads.Add(1)
	if background {
		n.Counts.Background.Add(1)
	}
	c, err := n.call(n.inside(ctx, l.key, background), l.key)
	slot()
	n.finish(ctx, l, c, err)
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
	n.flights.forget(l.key.Text)
}

// call runs the loader under LoadTimeout in a goroutine of its own, which a loader that ignores
// its context keeps; it is counted until it ends.
func (n *Node) call(ctx context.Context, k Key) (Copy, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, n.policy.LoadTimeout, ErrLoadTimeout)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(n.life.ctx, func() { end(ErrClosed) })()

	type result struct {
		c   Copy
		err error
	}
	came := make(chan result, 1)
	var settled atomic.Bool // by the first of the two: the loader's return, or the leaving
	go n.values.Load(ctx, k, func(c Copy, err error) {
		came <- result{c, err}
		if !settled.CompareAndSwap(false, true) {
			n.Counts.AbandonedNow.Add(-1)
		}
	})
	select {
	case r := <-came:
		return r.c, whose(ctx, r.err)
	case <-ctx.Done():
	}
	if settled.CompareAndSwap(false, true) {
		n.Counts.Abandoned.Add(1)
		n.Counts.AbandonedNow.Add(1)
		return nil, context.Cause(ctx)
	}
	r := <-came
	return r.c, whose(ctx, r.err)
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
func (n *Node) finish(ctx context.Context, l *load, c Copy, err error) {
	switch {
	case errors.Is(err, loader.ErrNotFound):
		n.store(ctx, l, nil)
	case err == nil:
		n.store(ctx, l, c)
	case errors.Is(err, ErrClosed) && n.life.ended():
		l.err = ErrClosed
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
func (n *Node) logFailure(k Key, err error) {
	if p, ok := errors.AsType[*loader.PanicError](err); ok {
		n.policy.Logger.Error("levee: a load panicked", "key", k.Redis, "error", err, "stack", string(p.Stack))
		return
	}
	n.policy.Logger.Warn("levee: a load failed", "key", k.Redis, "error", err)
}
