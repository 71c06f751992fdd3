package lock

import (
	"context"
	"errors"
	"time"
)

// Unlock gives the lock back. It works with a context that has ended, takes a second at most, and may be called again,
// by anybody: that returns what the first call did. An [ErrLost] says that the lease had ended before, so
// that what was done under it may have met with the work of others. After an [ErrUnavailable] it is tried again
// behind the caller's back until the lease ends by itself.
func (l *Lease) Unlock(ctx context.Context) error {
	if l == nil || l.borrowed {
		return nil
	}
	l.once.Do(func() {
		l.leak.Stop()
		l.err = l.hold.drop(ctx)
	})
	return l.err
}

// drop gives back one lease of the hold; the last ends it.
func (h *hold) drop(ctx context.Context) error {
	h.mu.Lock()
	h.leases--
	last := h.leases == 0
	h.mu.Unlock()
	if !last {
		return nil
	}
	h.finish(ctx, ErrReleased)
	return h.result
}

// finish ends the hold, once.
func (h *hold) finish(ctx context.Context, why error) {
	h.once.Do(func() {
		left := time.Duration(h.ends() - h.link.Clock.Now())
		h.endFor(why)
		h.locker.remove(h)
		h.result = h.giveBack(context.WithoutCancel(ctx), left)
	})
}

// giveBack tells Redis, and whoever wants to know. What may still land of the attempt is removed later.
func (h *hold) giveBack(ctx context.Context, left time.Duration) error {
	if h.outcome != "" { // what may still land finds our own lock, or the result: releasing would let another run
		return h.store(ctx, left)
	}
	if h.attempt.doubtful() {
		defer h.locker.life.asideOrNow(func() { h.locker.releaseLate(context.Background(), h.key, h.attempt) })
	}
	lost, _ := errors.AsType[*LostError](context.Cause(h.ctx))
	if lost != nil { // what is left of it in Redis is in nobody's way once its lease has ended, but that may be later
		h.releaseUntil(left)
		return lost
	}
	a, err := h.locker.release(ctx, h.key, h.Token)
	switch {
	case isConflict(err):
		err = h.explain(&LostError{Reason: Overwritten})
	case err != nil:
		h.releaseUntil(left)
		h.locker.tell(h.event(Unreleased, err))
		return err
	case a.status != statusReleased:
		err = h.explain(&LostError{Reason: Gone})
	}
	h.locker.tell(h.event(Released, err))
	return err
}

// releaseUntil releases behind the caller's back, again and again for as long as the lease may live.
func (h *hold) releaseUntil(left time.Duration) {
	h.insist(left, func(ctx context.Context) error {
		_, err := h.locker.release(ctx, h.key, h.Token)
		return err
	})
}

// insist does behind the caller's back what has to reach Redis, again and again for as long as the lease may live.
func (h *hold) insist(left time.Duration, do func(context.Context) error) {
	k := h.locker
	ends := k.link.Clock.Now().Add(left)
	k.life.aside(func() {
		err := do(context.Background())
		for pause := 100 * time.Millisecond; err != nil && k.link.Clock.Now() < ends && !k.life.sleep(pause); pause = min(2*pause, time.Second) {
			err = do(context.Background())
		}
	})
}

// noteForgotten gives back what its holder has forgotten.
func (h *hold) noteForgotten() {
	if h.forgotten.Swap(false) {
		h.locker.life.aside(func() {
			h.locker.tell(h.event(LeaseLeaked, nil))
			_ = h.drop(context.Background())
		})
	}
}
