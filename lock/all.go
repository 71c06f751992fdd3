package lock

import (
	"context"
	"errors"
	"slices"
)

// Leases are locks that were taken together. All methods are safe for concurrent use.
type Leases struct {
	all []*Lease
	ctx context.Context
	end context.CancelCauseFunc
}

// LockAll takes the locks called names, each once, in the order of their names whatever order they are given in, so that two
// callers cannot wait for each other. [WithWait] bounds the whole. If one cannot be had, or one that was had already is lost
// meanwhile, all are given back, and the error is that one's. The names may lie in different slots of a
// cluster: each is a lock of its own.
func (k *Locker) LockAll(ctx context.Context, names []string, options ...LockOption) (*Leases, error) {
	s, err := k.config.settings.with(options)
	if err != nil {
		return nil, err
	}
	within := ctx
	if s.wait > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, s.wait, ErrWaitTimeout)
		defer cancel()
		options = append(slices.Clone(options), WithWait(Off))
	}
	set := newLeases(ctx)
	within, part := set.until(within)
	defer part()
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		l, err := k.Lock(within, name, options...)
		if err != nil {
			return nil, set.failed(ctx, err)
		}
		set.add(l)
	}
	return set, nil
}

func newLeases(ctx context.Context) *Leases {
	set := &Leases{}
	set.ctx, set.end = context.WithCancelCause(context.WithoutCancel(ctx))
	return set
}

// until is ctx, but it ends with the first of the leases too.
func (s *Leases) until(ctx context.Context) (context.Context, func()) {
	ctx, end := context.WithCancelCause(ctx)
	part := context.AfterFunc(s.ctx, func() { end(context.Cause(s.ctx)) })
	return ctx, func() {
		part()
		end(nil)
	}
}

func (s *Leases) add(l *Lease) {
	s.all = append(s.all, l)
	held := l.Context()
	context.AfterFunc(held, func() { s.end(context.Cause(held)) })
}

// failed gives back what was had; the reason comes first, whatever comes of that.
func (s *Leases) failed(ctx context.Context, err error) error {
	if lost := context.Cause(s.ctx); lost != nil {
		err = lost
	}
	_ = s.Unlock(ctx)
	return err
}

// Context ends before the first of the leases does, with its cause.
func (s *Leases) Context() context.Context { return s.ctx }

// Lease returns the one called name, or nil.
func (s *Leases) Lease(name string) *Lease {
	i := slices.IndexFunc(s.all, func(l *Lease) bool { return l.Name() == name })
	if i < 0 {
		return nil
	}
	return s.all[i]
}

// Unlock gives all of them back, as [Lease.Unlock] does, the last one first.
func (s *Leases) Unlock(ctx context.Context) error {
	var all error
	for _, l := range slices.Backward(s.all) {
		all = errors.Join(all, l.Unlock(ctx))
	}
	return all
}
