package loader

import (
	"context"
	"runtime/debug"
)

// Call runs l for key and always returns: a panic becomes a [*PanicError]. A Goexit
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
		done(value, err)
	}()
	value, err = l.Load(ctx, key) // err stays ErrGoexit until Load has returned
}
