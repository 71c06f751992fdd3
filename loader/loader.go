package loader

import "context"

// Loader loads the value of one key from where it lives, usually a database.
//
// Levee calls Load in a goroutine of its own, for all callers that wait for the key at
// once. The context carries the values of the caller that was first, without its
// cancellation, and ends at the cache's LoadTimeout or when the cache is closed: pass it
// on to the driver. Asking the same cache for the same key with that context fails with
// cache.ErrRecursive instead of waiting for itself.
//
// A record that does not exist is reported with [ErrNotFound], also wrapped; it is
// remembered, and is not a failure. Any other error is: the key is left alone for the
// cache's ErrorBackoff. Load must be safe for concurrent use with different keys.
//
// The value is shared by all callers and kept in memory: neither the loader nor anybody
// else may change it afterwards.
type Loader[K comparable, V any] interface {
	Load(ctx context.Context, key K) (V, error)
}

// Func makes a plain function a [Loader]. A nil function gives a nil Loader, which
// cache.New refuses.
func Func[K comparable, V any](load func(ctx context.Context, key K) (V, error)) Loader[K, V] {
	if load == nil {
		return nil
	}
	return loadFunc[K, V](load)
}

type loadFunc[K comparable, V any] func(ctx context.Context, key K) (V, error)

func (f loadFunc[K, V]) Load(ctx context.Context, key K) (V, error) { return f(ctx, key) }
