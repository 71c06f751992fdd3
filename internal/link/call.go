package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrUnavailable is returned for calls that Redis did not answer in time, that the breaker
// refused, or that broke on the way: the caller goes on without Redis. What the call was to
// do may still happen.
var ErrUnavailable = errors.New("redis is unavailable")

// errNotSent marks a call that was not even tried.
var errNotSent = errors.New("not sent")

// NotSent tells that nothing went out to Redis, and nothing will.
func NotSent(err error) bool { return errors.Is(err, errNotSent) }

var (
	errBudget = errors.New("its time budget is spent")
	errStuck  = errors.New("too many calls are stuck inside the client")
)

// maxStuck bounds the goroutines left behind by calls that were given up on.
const maxStuck = 256

// Budget is how much time one operation may still lose to Redis. It belongs to one
// goroutine.
type Budget struct{ Left time.Duration }

// Class says how a call treats the breaker.
type Class bool

const (
	Spared Class = false // refused while the breaker is open
	Urgent Class = true  // goes past the breaker: what it does must be tried
)

// Call runs f, which talks to Redis, and waits for it no longer than b has left, whatever
// timeouts the client was given: go-redis does not apply a context's deadline to its sockets
// unless told to. A call that is given up on ends with the client's own timeouts; such calls
// are bounded in number. f must not write what its caller goes on reading. An error that is
// not the server's own answer wraps [ErrUnavailable].
func Call[T any](ctx context.Context, l *Link, b *Budget, class Class, f func(context.Context) (T, error)) (T, error) {
	done, err := l.admit(b, class)
	if err != nil {
		var none T
		return none, fmt.Errorf("%w: %w: %w", ErrUnavailable, errNotSent, err)
	}
	began := l.Clock.Now()
	v, err := bounded(ctx, l, b.Left, f)
	b.Left -= time.Duration(l.Clock.Now() - began)
	silent := !answered(err)
	if silent && ctx.Err() != nil {
		done(context.Canceled) // its caller has left: that says nothing of Redis
	} else {
		done(err)
	}
	if silent {
		err = unavailable(ctx, err)
	}
	return v, err
}

// unavailable hides deadlines that are ours, or the client's: a caller who tests for his own must
// not find it as long as it has not passed.
func unavailable(ctx context.Context, err error) error {
	if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// admit asks the breaker; done takes the outcome.
func (l *Link) admit(b *Budget, class Class) (done func(error), err error) {
	switch {
	case b.Left <= 0:
		return nil, errBudget
	case l.stuck.Load() >= maxStuck:
		return nil, errStuck
	case class == Urgent:
		return func(error) {}, nil
	default:
		return l.breaker.Allow()
	}
}

// bounded runs f in a goroutine and leaves it behind after d.
func bounded[T any](ctx context.Context, l *Link, d time.Duration, f func(context.Context) (T, error)) (v T, err error) {
	c := newCall[T](ctx, d)
	go c.run(l, f)
	if why := c.wait(l, d); why != nil && c.settled.CompareAndSwap(false, true) {
		l.stuck.Add(1)
		c.end(cmp.Or(ctx.Err(), context.DeadlineExceeded))
		return v, why
	}
	<-c.came
	c.end(context.Canceled)
	return c.v, c.err
}
