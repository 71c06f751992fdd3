package lock

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
)

// Once runs functions once per id within a window, on whatever node the id comes: a payment that is called back twice,
// a form that is sent twice. An id is a lock until its function has returned, and its result from then on, in one key.
//
// What it cannot promise is about effects outside Redis. A node that dies after the effect and before the result is stored leaves an
// id that runs again, and so does a failover of Redis that loses the result, or a Redis that evicts it: so give the id
// to who has the effect too, as the idempotency key of a payment provider, or under a unique index.
//
// All methods are safe for concurrent use. Make one per kind of id, each with its own [WithPrefix], and keep it.
type Once[V any] struct {
	locker *Locker
	free   func() // gives up the prefix
}

const (
	window      = 24 * time.Hour
	leastWindow = time.Second
	mostWindow  = 366 * 24 * time.Hour
)

// NewOnce returns a Once, as [New] returns a Locker: with its own prefix once: and [WithWindow]. Results travel as JSON, so V is
// a type that comes out of it as it went in; those with other types of V on the same client need other prefixes. [WithLease]
// is for how long a crash keeps an id from running again, and [WithMaxHold] how long a function may take.
func NewOnce[V any](client redis.UniversalClient, options ...Option) (*Once[V], error) {
	c, err := newConfig(append([]Option{WithPrefix("once:"), WithWindow(window)}, options...))
	fits := c.window >= leastWindow && c.window <= mostWindow
	if err := errors.Join(err, unless(fits, "WithWindow: %v is not from %v to %v", c.window, leastWindow, mostWindow)); err != nil {
		return nil, err
	}
	k, err := open(client, c)
	if err != nil {
		return nil, err
	}
	free, err := k.link.Claim("once "+c.prefix, reflect.TypeFor[V]())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock: WithPrefix: %w", err), k.Close())
	}
	return &Once[V]{k, free}, nil
}

// Do returns the result of fn for this id: fn runs if no call with the id has brought a result within the window, and else the
// result that was stored comes back. While fn runs, on any node, other calls with the id wait for it, as long as their
// contexts and [WithWait] allow; its result is theirs too. If it returns an error, panics or ends its goroutine nothing
// is stored, and one of those who wait runs its own fn next. Its error comes through as it is, and a panic goes on to the caller.
//
// fn's context ends with ctx, and before the lease does, as that of [Locker.Do]; [FromContext] gives the lease. An id has up to 1 KiB.
//
// An error that is not fn's own is one of these. fn was not run by this call if it is an
//   - [ErrInProgress]: fn runs elsewhere, and WithWait is 0;
//   - [ErrWaitTimeout] or the context's error: it still runs, or could not be asked for, after the time to wait;
//   - [ErrUnavailable]: Redis did not answer; or [ErrNotReplicated], with [WithReplicas];
//   - [ErrConflict]: the key holds what is not ours, or a result that is not a V;
//   - [ErrRecursive]: fn has called Do with its own id;
//   - [ErrClosed].
//
// An [ErrNotStored] comes before these, some of which it wraps: fn has run and has succeeded, but others may not get what it has returned.
// The call that has run it gets the value beside the error. See [NotStoredError].
func (o *Once[V]) Do(ctx context.Context, id string, fn func(context.Context) (V, error), options ...LockOption) (v V, err error) {
	k := o.locker
	if !k.life.enter() { // Close waits for fn
		return v, ErrClosed
	}
	defer k.life.leave()
	if k.runs(ctx, id) {
		return v, fmt.Errorf("%w: %q", ErrRecursive, id)
	}
	l, err := k.Lock(ctx, id, options...)
	if err != nil {
		return o.answer(id, err)
	}
	return o.run(ctx, l, fn)
}

// runs tells whether ctx is of what runs under the id.
func (k *Locker) runs(ctx context.Context, id string) bool {
	for h := range holdsOf(ctx) {
		if h.locker == k && h.name == id && h.ctx.Err() == nil {
			return true
		}
	}
	return false
}

// answer is what comes of an id whose lock could not be had: the result, if that is why.
func (o *Once[V]) answer(id string, err error) (v V, _ error) {
	if done, ok := errors.AsType[*doneError](err); ok {
		return readOutcome[V](id, o.locker.key(id), done.outcome)
	}
	return v, inProgress(id, err)
}

// run runs fn under the lease, which its result ends.
func (o *Once[V]) run(ctx context.Context, l *Lease, fn func(context.Context) (V, error)) (v V, err error) {
	var unfit error
	unstored := l.do(ctx, func(ctx context.Context, l *Lease) error {
		if v, err = fn(ctx); err == nil {
			l.hold.outcome, unfit = outcomeOf(v)
		}
		return nil
	})
	if err == nil && (unstored != nil || unfit != nil) { // else nothing was to be stored: observers hear of the rest
		err = &NotStoredError{ID: l.Name(), Err: errors.Join(unfit, unstored)}
	}
	return v, err
}

// Forget lets an id run again whose result is stored. Of one that has no result it does nothing, of one that runs it returns an
// [ErrInProgress].
func (o *Once[V]) Forget(ctx context.Context, id string) error {
	fence := int64(0)
	for range 2 { // the first asks which run it is
		a, err := o.locker.order(ctx, id, link.ScriptCall{Script: scripts.forget, Args: []any{fence}})
		switch {
		case err != nil:
			return err
		case a.status == statusBusy:
			return inProgress(id, a.busy(id))
		}
		fence = a.int(0)
	}
	return nil // also if there is another result now: it is of a later run
}

// Close lets nobody begin any more, makes those who wait return [ErrClosed], and returns when the functions that run have
// returned, and their results are stored: end their contexts if that takes too long.
func (o *Once[V]) Close() error {
	o.free()
	return o.locker.Close()
}
