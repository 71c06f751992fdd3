package loader

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
)

// Call runs l for key and always returns: a panic becomes a [*PanicError], also one of the
// returned error's own Unwrap, Is or As. A Goexit
// cannot be stopped; before the goroutine ends, done is called with [ErrGoexit]. In every
// case done is called exactly once, with what the load came to, in the calling goroutine.
func Call[K comparable, V any](ctx context.Context, l Loader[K, V], key K, done func(V, error)) {
	var (
		value V
		err   = ErrGoexit
	)
	defer func() {
		if p := recover(); p != nil {
			err = &PanicError{Value: p, Stack: debug.Stack()}
		}
		done(value, harmless(err))
	}()
	value, err = l.Load(ctx, key) // err stays ErrGoexit until Load has returned
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
