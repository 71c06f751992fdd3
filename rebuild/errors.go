package rebuild

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

var (
	// ErrClosed is returned by every call on a closed cache, and to callers that wait when it
	// is closed.
	ErrClosed = errors.New("levee: the cache is closed")
	// ErrOverloaded is returned when MaxConcurrentLoads are running and the call got no slot
	// within LoadTimeout, or ten times as many wait for one already: then at once. Shed load, or
	// raise the limit. Also while an abandoned load of the key still runs and many do: then the loader
	// ignores its context.
	ErrOverloaded = errors.New("levee: too many loads are running")
	// ErrRecursive is returned to a loader that asks, with the context it was given, for a key
	// whose load it is part of: it would wait for itself.
	ErrRecursive = errors.New("levee: a load asks for its own key")
	// ErrLoadTimeout is returned when a load took longer than LoadTimeout. It was abandoned:
	// its result, should it come, is dropped. The key is left alone for ErrorBackoff.
	ErrLoadTimeout = errors.New("levee: the load took longer than LoadTimeout")
	// ErrWaitTimeout is returned to a caller that waited for another node whose load went on for
	// longer than this node's LoadTimeout and a Lease: the nodes' options differ.
	ErrWaitTimeout = errors.New("levee: another node's load goes on for longer than LoadTimeout")
)

// BackoffError is returned instead of a load that failed a short while ago, here or on another
// node, to callers that cannot be given a stale value. Nothing was asked of the database. Try
// again after RetryAfter, or report what failed.
type BackoffError struct {
	// RetryAfter is how long the key will still be left alone.
	RetryAfter time.Duration
	// Message is the text of the failure, at most 256 bytes, after Options.RedactError. It is
	// empty on other nodes while Redis still holds the stale value.
	Message string
	// Remote is set if the load failed on another node, so that only the text is known;
	// otherwise the error unwraps to the failure itself.
	Remote bool

	cause error
}

// Error says how long the key is left alone, and why.
func (e *BackoffError) Error() string {
	return fmt.Sprintf("levee: left alone for %v after a failed load: %s", e.RetryAfter.Round(time.Millisecond), e.Message)
}

// Unwrap returns the failure, if it happened in this process.
func (e *BackoffError) Unwrap() error { return e.cause }

// InvalidationError is returned by Delete, Set, Expire, Clear, InvalidateTag and ExpireTag if Redis did not
// confirm them. The local copies are gone all the same and running loads keep nothing; what Redis and
// other nodes hold may be served for up to Bound. It is tried again in the background as long as
// Options.RetryDeletes says; to try it again oneself is safe.
type InvalidationError struct {
	// Key is the key's text, if it was about a key.
	Key string
	// Tag is the tag, if it was about a tag.
	Tag string
	// All is set if it was a Clear.
	All bool
	// Bound is how long the old value may still be served elsewhere, as far as this node can know: values of which it
	// has met none may have a longer TTL of their own.
	Bound time.Duration

	cause error
}

// Error names what it was about, and the bound.
func (e *InvalidationError) Error() string {
	what := fmt.Sprintf("key %q", e.Key)
	switch {
	case e.All:
		what = "all keys"
	case e.Tag != "":
		what = fmt.Sprintf("tag %q", e.Tag)
	}
	return fmt.Sprintf("levee: invalidation of %s is not confirmed, others may serve the old value for up to %v: %v",
		what, e.Bound, e.cause)
}

// Unwrap returns what Redis, or the way to it, had against it.
func (e *InvalidationError) Unwrap() error { return e.cause }

// maxMessage bounds the text of a failure that goes to other nodes.
const maxMessage = 256

// message is what of err may be told to other nodes.
func (p Policy) message(err error) (text string) {
	defer func() {
		if recover() != nil { // RedactError is a user's code
			text = "redacted"
		}
	}()
	text = p.Redact(err)
	if len(text) <= maxMessage {
		return text
	}
	cut := maxMessage
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut]
}
