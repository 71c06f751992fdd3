package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// waiter is the head of a line, and so this process's entry in the queue of a lock.
type waiter struct {
	asking
	locker *Locker
	began  link.Instant
	last   *BusyError // what was heard last
	heard  link.Instant
	ends   link.Instant // the lease of who has the lock
	place  int          // in the queue; negative: the queue is full
	poll   time.Duration

	wake   chan struct{} // something has happened: a grant, or to the inbox; nil until the inbox knows of it
	letter message       // that came last; guarded by inbox.mu
}

const (
	heartbeat = time.Second            // how often a place in the queue is refreshed, give or take a fifth
	pollFirst = 50 * time.Millisecond  // how often is asked while no message can come, doubling
	pollMost  = 250 * time.Millisecond // to this
	perPlace  = 50 * time.Millisecond  // by which a waiter lets each of those before it come first when a lease ends
	enough    = 250 * time.Millisecond // what must be left of a grant to begin without asking
)

// wait takes the lock in its turn.
func (k *Locker) wait(ctx context.Context, name string, s *settings) (*Lease, error) {
	if l := k.again(ctx, name, s); l != nil {
		return l, nil
	}
	values := ctx
	if s.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.wait, ErrWaitTimeout)
		defer cancel()
	}
	w := &waiter{locker: k, began: k.link.Clock.Now(), poll: pollFirst}
	w.asking = asking{name: name, key: k.key(name), attempt: newAttempt(), settings: s, inbox: noToken, alive: alive}
	if err := k.lines.enter(ctx, k.life.ctx.Done(), name); err != nil {
		return nil, w.out(ctx, err)
	}
	defer k.lines.leave(name)
	h, err := w.run(ctx, values)
	w.locker.inbox.leave(w)
	if err != nil {
		return nil, w.out(ctx, err)
	}
	return h.lease(), nil
}

// out is what a wait comes to that has failed. A holder that was heard of is named.
func (w *waiter) out(ctx context.Context, err error) error {
	if isDone(err) {
		return err
	}
	if w.sent.Load() == 0 && !w.silent.Load() {
		w.alive = 0 // nothing was asked for
	}
	err = w.locker.failed(ctx, w.asking, w.began, err)
	if errors.Is(err, ErrWaitTimeout) {
		return &TimeoutError{w.name, w.last}
	}
	return err
}

// run asks and waits until the lock is had.
func (w *waiter) run(ctx, values context.Context) (*hold, error) {
	w.heard = w.began
	if w.inbox = w.locker.inbox.name(); w.inbox != noToken {
		w.settle()
	}
	for {
		h, err := w.ask(ctx, values)
		if h != nil || err != nil {
			return h, err
		}
		if w.wake == nil {
			w.settle()
		}
		m, err := w.sleep(ctx)
		if err != nil {
			return nil, err
		}
		if h := w.begin(values, m); h != nil {
			return h, nil
		}
	}
}

// settle makes w hear of grants.
func (w *waiter) settle() {
	w.wake = make(chan struct{}, 1)
	w.locker.inbox.join(w)
}

// ask tries to get the lock. It returns neither hold nor error if there is reason to wait.
func (w *waiter) ask(ctx, values context.Context) (*hold, error) {
	a, err := w.locker.acquire(ctx, w.asking)
	switch {
	case err != nil:
		return nil, w.endure(ctx, err)
	case a.status == statusAcquired:
		return w.locker.acquired(values, w.asking, w.began, granted{fence: a.int(0), sent: a.sent}, a), nil
	case a.status == statusDone:
		return nil, w.locker.repeated(w.asking, w.began, a)
	case a.status == statusAbandoned: // a grant was broken before it was heard of
		w.renew()
		return nil, nil
	}
	w.heard, w.last = a.sent, a.busy(w.name)
	w.ends, w.place = w.locker.link.Clock.Now().Add(w.last.Remaining), int(a.int(1))
	return nil, nil
}

// endure tells whether the wait goes on after an error: while Redis still knows of it.
func (w *waiter) endure(ctx context.Context, err error) error {
	waits := w.last != nil && w.locker.since(w.heard) < alive
	if ctx.Err() != nil || !waits || isConflict(err) || errors.Is(err, ErrNotReplicated) {
		return err
	}
	w.place, w.ends = -1, w.locker.link.Clock.Now().Add(alive) // nothing is known: only the poll counts
	return nil
}

// renew takes another token, under which to wait anew.
func (w *waiter) renew() {
	w.locker.inbox.leave(w)
	w.attempt = newAttempt()
	w.settle()
	w.poke()
}

// sleep waits until something may have happened; a message that it has, if there is one, is returned.
func (w *waiter) sleep(ctx context.Context) (m message, err error) {
	t := time.NewTimer(w.nap())
	defer t.Stop()
	select {
	case <-w.wake:
		m, w.inbox = w.locker.inbox.look(w)
	case <-t.C:
	case <-w.locker.life.ctx.Done():
		err = ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	return m, err
}

// nap is how long to sleep: until the heartbeat is due, or the lease of the holder has ended without
// a word.
func (w *waiter) nap() time.Duration {
	nap := time.Duration((0.8 + 0.4*rand.Float64()) * float64(heartbeat))
	if w.place < 0 || w.inbox == noToken {
		nap = time.Duration((0.75 + rand.Float64()/2) * float64(w.poll))
		w.poll = min(2*w.poll, pollMost)
	}
	over := time.Duration(w.ends-w.locker.link.Clock.Now()) + time.Duration(max(w.place, 0))*perPlace
	return min(nap, max(over, 0)+time.Millisecond+rand.N(4*time.Millisecond))
}

// begin starts on a grant that was heard of, without asking: the claim is a lease, and its first renewal makes it
// a whole one. It returns nil if too little is left of it, or cannot be known, if replicas are to confirm it, and for a Once: what
// that runs has effects, and begins with a whole lease.
func (w *waiter) begin(values context.Context, m message) *hold {
	if m.token != w.token || w.fixed || w.replicas != nil || w.locker.config.once() {
		return nil
	}
	c := w.locker.link.Clock
	ends, _, ok := c.Span(w.locker.link.Master(values, w.key), m.until*1000)
	if !ok || c.Until(ends) < enough {
		return nil
	}
	g := granted{fence: m.fence, sent: c.Now(), ends: ends.Add(-(claim / 100))}
	return w.locker.acquired(values, w.asking, w.began, g, answer{})
}

// poke makes w ask.
func (w *waiter) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
