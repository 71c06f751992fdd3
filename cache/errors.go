package cache

import (
	"github.com/levee-cache/levee/loader"
	"github.com/levee-cache/levee/rebuild"
)

// The errors of this package. All are to be tested with errors.Is; an error of a loader comes
// through as it is.
var (
	// ErrNotFound says that the record does not exist: the loader said so, now or within
	// NegativeTTL. It is a result, not a failure.
	ErrNotFound = loader.ErrNotFound
	// ErrClosed is returned by every call on a closed cache, and to callers that wait when it
	// is closed.
	ErrClosed = rebuild.ErrClosed
	// ErrOverloaded is returned when MaxConcurrentLoads are running and the call got no slot
	// within LoadTimeout, or ten times as many wait for one already: then at once. Shed load, or
	// raise the limit. Also while an abandoned load of the key still runs and many do: then the loader
	// ignores its context.
	ErrOverloaded = rebuild.ErrOverloaded
	// ErrRecursive is returned to a loader that asks, with the context it was given, for a key
	// whose load it is part of. Waiting would never end.
	ErrRecursive = rebuild.ErrRecursive
	// ErrLoadTimeout is returned when a load took longer than LoadTimeout and was abandoned.
	// The key is left alone for ErrorBackoff; then a call loads again.
	ErrLoadTimeout = rebuild.ErrLoadTimeout
	// ErrWaitTimeout is returned to a caller that waited for another node whose load went on for
	// longer than this node's LoadTimeout and a Lease: the nodes' options differ.
	ErrWaitTimeout = rebuild.ErrWaitTimeout
)

// BackoffError is returned at once, instead of a load, for a key whose load failed a short
// while ago on any node. Try again after RetryAfter.
type BackoffError = rebuild.BackoffError

// InvalidationError is returned by Delete, Set and Expire if Redis did not confirm them. The
// local copy is gone all the same; others may serve the old value for up to Bound. Repeating
// the call is safe.
type InvalidationError = rebuild.InvalidationError
