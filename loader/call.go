package loader

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Call runs l for key and always returns: a panic becomes a [*PanicError], also one of the
// returned error's own Unwrap, Is or As. A Goexit cannot be stopped; before the goroutine ends, done
// is called with [ErrGoexit]. In every case done is called exactly once, with what the load came
// to, in the calling goroutine; a batch of [Coalesce] that the load has left is waited for before.
// previous is for a [Revalidator], and may be nil.
func Call[K comparable, V any](ctx context.Context, l Loader[K, V], key K, previous *Previous[V], done func(Result[V], error)) {
	var (
		result Result[V]
		err    = ErrGoexit
		left   sync.WaitGroup
	)
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		left.Wait()
		done(result, harmless(err))
	}()
	ctx = context.WithValue(ctx, leftKey{}, &left)
	result, err = load(ctx, l, key, previous) // err stays ErrGoexit until it has returned
}

// leftKey is what a context tells by of the batches that its load has left while they ran: the load has
// not ended as long as they have not.
type leftKey struct{}

func load[K comparable, V any](ctx context.Context, l Loader[K, V], key K, previous *Previous[V]) (r Result[V], err error) {
	full, ok := l.(Revalidator[K, V])
	if !ok {
		r.Value, err = l.Load(ctx, key)
		return r, err
	}
	r, err = full.Revalidate(ctx, key, previous)
	if err == nil && r.NotModified && previous == nil {
		err = ErrNoPrevious
	}
	return r, err
}

// harmless returns err, or what became of it if its own methods panic, as those of a nil
// pointer returned as an error do: whoever looks at it later is not protected.
func harmless(err error) (safe error) {
	defer func() {
		if p := recover(); p != nil {
			safe = &PanicError{Value: fmt.Sprint("an error of the load function: ", p), Stack: debug.Stack()}
		}
	}()
	errors.Is(err, ErrNotFound)
	errors.As(err, new(*PanicError))
	return err
}
