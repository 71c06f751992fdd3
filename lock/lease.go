package lock

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// Lease is a lock that was taken. It is renewed until Unlock, for [WithMaxHold], or until it is lost, and so it
// is a lease: who stops for long enough, or cannot reach Redis, loses it. All methods are safe for concurrent use,
// and on a nil Lease, which is one that was never had.
type Lease struct {
	hold     *hold
	borrowed bool // by FromContext: it is given back by somebody else
	once     sync.Once
	err      error // of Unlock; read only after once
	leak     runtime.Cleanup
}

// lease hands out a hold. One that is renewed and then forgotten would be renewed for long: it is given back with
// the next renewal after the garbage collector has found it. One that is not renewed may be left to itself on purpose.
func (h *hold) lease() *Lease {
	l := &Lease{hold: h}
	if !h.settings.fixed {
		l.leak = runtime.AddCleanup(l, func(h *hold) { h.forgotten.Store(true) }, h)
	}
	return l
}

// Name is that of the lock, or "".
func (l *Lease) Name() string {
	if l == nil {
		return ""
	}
	return l.hold.name
}

// Fence is the lease's fencing number: for one name greater than that of all earlier leases, also when the
// key was lost meanwhile, as long as the server's clock was not set back. Give it to what you write to, and let that refuse a
// number that is less than one it has seen. 0 for a nil Lease.
func (l *Lease) Fence() int64 {
	if l == nil {
		return 0
	}
	return l.hold.Start
}

// Context ends a little before the lease does, also when Redis cannot be reached; its cause is an [ErrLost],
// [ErrMaxHold], [ErrReleased] or [ErrClosed]. It has the values of the context that Lock was called with,
// but does not end with that one; [Locker.Do] gives one that does.
func (l *Lease) Context() context.Context {
	if l == nil {
		return neverHad
	}
	return l.hold.ctx
}

// neverHad is the context of a nil Lease.
var neverHad = func() context.Context {
	ctx, end := context.WithCancelCause(context.Background())
	end(errNeverHad)
	return ctx
}()

var errNeverHad = errors.New("lock: there is no lease")

// Deadline is when the lease ends unless it is renewed before; zero for a nil Lease. Nobody else gets the
// lock before, as long as the server's clock is not set.
func (l *Lease) Deadline() time.Time {
	if l == nil {
		return time.Time{}
	}
	return l.hold.Deadline().Add(-grain)
}

// Valid tells whether the lease is held, by the clocks of this machine: it asks nobody.
func (l *Lease) Valid() bool {
	if l == nil {
		return false
	}
	h := l.hold
	return h.ctx.Err() == nil && h.link.Clock.Until(h.ends()) > grain && !h.link.Leases.Slept(h.renewal)
}

// Refresh begins the lease anew, as a renewal does, and so also finds out whether it is still held. It is for leases
// that are not renewed, and before what must not go wrong. It returns an [ErrLost] or [ErrUnavailable].
func (l *Lease) Refresh(ctx context.Context) error {
	if l == nil {
		return errNeverHad
	}
	h := l.hold
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx)
	}
	if !h.locker.life.enter() {
		return ErrClosed
	}
	defer h.locker.life.leave()
	return h.refresh(ctx)
}

func (h *hold) refresh(ctx context.Context) error {
	b := h.locker.budget()
	a, err := h.locker.run(ctx, &b, link.Urgent, h.renewal.Call)
	switch {
	case isConflict(err):
		return h.gone(&LostError{Reason: Overwritten})
	case err != nil && ctx.Err() != nil:
		return leaving(ctx, h.name)
	case err != nil:
		return err
	case a.status != statusHeld:
		return h.gone(h.lostFor(a))
	}
	h.link.Leases.Extended(h.renewal, a.sent)
	return nil
}

// gone ends a hold that the server does not know any more, and returns why.
func (h *hold) gone(why *LostError) error {
	h.link.Leases.Remove(h.renewal)
	if h.ctx.Err() == nil {
		h.lost(why)
	}
	return context.Cause(h.ctx)
}

func isConflict(err error) bool { return errors.Is(err, ErrConflict) }

// holding is the key under which a context knows the hold that it is of.
type holding struct{}

// FromContext returns the lease whose context ctx is, or was made from. It is for asking: Unlock of it
// does nothing, the lock is given back by who took it.
func FromContext(ctx context.Context) (*Lease, bool) {
	h, ok := ctx.Value(holding{}).(*hold)
	if !ok {
		return nil, false
	}
	return &Lease{hold: h, borrowed: true}, true
}
