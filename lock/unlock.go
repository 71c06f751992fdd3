package lock

import (
	"context"
	"errors"
	"time"

	"github.com/levee-cache/levee/internal/link"
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

// giveBack tells Redis, and whoever wants to know.
func (h *hold) giveBack(ctx context.Context, left time.Duration) error {
	lost, _ := errors.AsType[*LostError](context.Cause(h.ctx))
	if lost != nil { // what may be left of it in Redis is in nobody's way, once its lease has ended
		h.later(0, h.attempt.doubtful())
		return lost
	}
	a, err := h.locker.release(ctx, h.key, h.Token)
	switch {
	case isConflict(err):
		err = h.explain(&LostError{Reason: Overwritten})
	case err != nil:
		h.later(left, true)
		h.locker.tell(h.event(Unreleased, err))
		return err
	case a.status != statusReleased:
		err = h.explain(&LostError{Reason: Gone})
	}
	if h.attempt.doubtful() {
		h.later(0, true)
	}
	h.locker.tell(h.event(Released, err))
	return err
}

// later releases behind the caller's back: at once, and if there is doubt, again when nothing
// can land any more, and then for as long as the lease may live.
func (h *hold) later(left time.Duration, doubt bool) {
	k := h.locker
	ends := k.link.Clock.Now().Add(left)
	tried := func() {
		ctx := context.Background()
		_, err := k.release(ctx, h.key, h.Token)
		if doubt {
			k.link.Clock.SleepUntil(link.Instant(h.attempt.refused.Load()))
			_, err = k.release(ctx, h.key, h.Token)
		}
		for pause := 100 * time.Millisecond; err != nil && k.link.Clock.Now() < ends && !k.life.sleep(pause); pause = min(2*pause, time.Second) {
			_, err = k.release(ctx, h.key, h.Token)
		}
	}
	if !k.life.aside(tried) {
		tried() // closing: there is no later
	}
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
