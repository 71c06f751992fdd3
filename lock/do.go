package lock

import (
	"context"
	"errors"
)

// Do runs body under the lock called name, which it takes as Lock does. The body's context ends with ctx, and before
// the lease ends. The lock is given back after the body has returned, or has panicked or ended its goroutine: so commit
// in it what others are to see. The error is the body's, joined with an [ErrLost] if the lease had ended before,
// or with what else came of giving it back.
func (k *Locker) Do(ctx context.Context, name string, body func(context.Context, *Lease) error, options ...LockOption) error {
	l, err := k.Lock(ctx, name, options...)
	if err != nil {
		return err
	}
	return l.do(ctx, body)
}

// do runs body under the lease, and gives it back.
func (l *Lease) do(ctx context.Context, body func(context.Context, *Lease) error) (err error) {
	within, end := l.hold.within(ctx)
	defer func() {
		end()
		if given := l.Unlock(ctx); given != nil {
			err = errors.Join(err, given)
		}
	}()
	return body(within, l)
}

// within is a context that ends with ctx, and with the hold.
func (h *hold) within(ctx context.Context) (context.Context, func()) {
	ctx, end := context.WithCancelCause(context.WithValue(ctx, holding{}, h))
	part := context.AfterFunc(h.ctx, func() { end(context.Cause(h.ctx)) })
	return ctx, func() {
		part()
		end(ErrReleased)
	}
}
