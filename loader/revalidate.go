package loader

import (
	"context"
	"errors"
	"time"
)

// Previous is what the cache still has of a key when it is loaded anew.
type Previous[V any] struct {
	Value      V             // read-only: callers may be served it
	RowVersion uint64        // of the row that it was made of, 0 if the writer gave none
	Version    int64         // when its load began, in microseconds of Redis's clock; 0 without Redis
	Age        time.Duration // since then
}

// Result is what a load may answer beside a value.
type Result[V any] struct {
	// Value is the record. It is ignored with NotModified, and with an error.
	Value V
	// NotModified says that the previous value is still right: its windows start anew, and it
	// is not sent to Redis again. Without a previous value it is [ErrNoPrevious], a failure.
	NotModified bool
	// TTL is how long this value is fresh; 0 is the cache's own TTL (with [ErrNotFound]:
	// NegativeTTL), less than 0 is NoStore. It is jittered as any other, and at most a year.
	TTL time.Duration
	// RowVersion is the database's version of the row, which grows with each write; 0 for none.
	// A value older than the entry's is not stored: it came from a replica that lags behind.
	RowVersion uint64
	// Tags name groups that the value belongs to: InvalidateTag and ExpireTag of the cache end all
	// values of a group at once. Up to 64, each of 1 to 256 bytes. With NotModified nil leaves those that the
	// value has.
	Tags []string
	// NoStore lets the value be returned to everybody who waited for it, and be kept nowhere. For
	// a second nodes then load the key beside each other, one load at a time each, instead of
	// waiting for one another, and an old value is not served any more.
	NoStore bool
}

// Revalidator is a [Loader] in its full form.
type Revalidator[K comparable, V any] interface {
	Loader[K, V]
	// Revalidate loads as Load does. previous is nil if there is no value, or none that could be
	// kept.
	Revalidate(ctx context.Context, key K, previous *Previous[V]) (Result[V], error)
}

// ErrNoPrevious is what callers get when a load answered NotModified though it had been given no
// previous value.
var ErrNoPrevious = errors.New("loader: not modified, but there was no previous value")

// Revalidate makes a [Loader] of a function that is given the previous value, if there is one, and
// may answer that it is not modified, as an HTTP cache does with an ETag. What [Loader] says of
// Load holds for it too. A nil function gives a nil Loader.
func Revalidate[K comparable, V any](load func(ctx context.Context, key K, previous *Previous[V]) (Result[V], error)) Loader[K, V] {
	if load == nil {
		return nil
	}
	return revalidateFunc[K, V](load)
}

type revalidateFunc[K comparable, V any] func(ctx context.Context, key K, previous *Previous[V]) (Result[V], error)

func (f revalidateFunc[K, V]) Revalidate(ctx context.Context, key K, previous *Previous[V]) (Result[V], error) {
	return f(ctx, key, previous)
}

func (f revalidateFunc[K, V]) Load(ctx context.Context, key K) (V, error) {
	r, err := f(ctx, key, nil)
	if err == nil && r.NotModified {
		err = ErrNoPrevious
	}
	return r.Value, err
}
