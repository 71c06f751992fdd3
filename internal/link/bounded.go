package link

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// call is one run of a function in a goroutine of its own, and the context that it is given: its caller's, but it ends
// when nobody waits for the function any more. A context from the standard library would cost twice the memory.
type call[T any] struct {
	context.Context
	ends time.Time     // when nobody waits any more at the latest
	over chan struct{} // closed when nobody does
	why  error         // written before over is closed

	came    chan struct{} // closed when the function has returned
	v       T             // written before came is closed
	err     error
	settled atomic.Bool // by the first of the two: the call's end, or the waiter's leaving
}

func newCall[T any](ctx context.Context, d time.Duration) *call[T] {
	c := &call[T]{Context: ctx, ends: time.Now().Add(d), over: make(chan struct{}), came: make(chan struct{})}
	if own, ok := ctx.Deadline(); ok && own.Before(c.ends) {
		c.ends = own
	}
	return c
}

func (c *call[T]) Deadline() (time.Time, bool) { return c.ends, true }

func (c *call[T]) Done() <-chan struct{} { return c.over }

func (c *call[T]) Err() error {
	select {
	case <-c.over:
		return c.why
	default:
		return nil
	}
}

// end ends the context.
func (c *call[T]) end(why error) {
	c.why = why
	close(c.over)
}

func (c *call[T]) run(l *Link, f func(context.Context) (T, error)) {
	makeRoom(0)
	c.v, c.err = recovered(c, f)
	close(c.came)
	if !c.settled.CompareAndSwap(false, true) {
		l.stuck.Add(-1)
	}
}

// makeRoom grows the stack to what the client needs. A goroutine begins with a small one, and on its way down through
// the client it would be doubled, and copied with all that is on it by then, again and again.
//
//go:noinline
func makeRoom(i int) byte {
	var room [6 << 10]byte
	return room[i]
}

// wait returns when the function does, or why it is not waited for any more: after d, or when the caller leaves.
func (c *call[T]) wait(l *Link, d time.Duration) (why error) {
	t := l.timer(d)
	defer l.timers.Put(t)
	defer t.Stop()
	select {
	case <-c.came:
		return nil
	case <-t.C:
		return errBudget
	case <-c.Context.Done():
		return context.Cause(c.Context)
	}
}

// timer is one that was used before, if there is one.
func (l *Link) timer(d time.Duration) *time.Timer {
	t, ok := l.timers.Get().(*time.Timer)
	if !ok {
		return time.NewTimer(d)
	}
	t.Reset(d)
	return t
}

// recovered keeps a panic in a user's hook or dialer from ending the process: this goroutine
// is ours, and nobody above it recovers.
func recovered[T any](ctx context.Context, f func(context.Context) (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic inside the redis client: %v", p)
		}
	}()
	return f(ctx)
}
