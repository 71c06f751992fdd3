package rebuild

import (
	"math/rand/v2"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// failures is this process's memory of failed loads: it is asked when Redis cannot be, and
// for loads without a lease.
type failures struct {
	fading[failure]
	clock  *link.Clock
	policy Policy
}

type failure struct {
	err   error
	until link.Instant
	count int
}

// newFailures remembers for twice the longest back-off at the least, so that a count outlives the
// pause that it led to.
func newFailures(clock *link.Clock, p Policy) *failures {
	return &failures{fading: fading[failure]{life: 2 * backoffGrowth * p.Backoff}, clock: clock, policy: p}
}

// record remembers that the load of key failed, and says how long to leave it alone.
func (f *failures) record(key string, err error) (pause time.Duration) {
	f.update(key, func(last failure) failure {
		count := last.count + 1
		pause = f.policy.pauseAfter(count, rand.Float64())
		return failure{err: err, until: f.clock.Now().Add(pause), count: count}
	})
	return pause
}

// recall returns the failure of key while its back-off lasts.
func (f *failures) recall(key string) (*BackoffError, bool) {
	e := f.find(key)
	left := f.clock.Until(e.until)
	if e.err == nil || left <= 0 {
		return nil, false
	}
	return &BackoffError{RetryAfter: left, Message: f.policy.message(e.err), cause: e.err}, true
}

// Failure is what this process remembers of a failed load of the key with this text while its
// back-off lasts, or nil.
func (n *Node) Failure(text string) error {
	if e, ok := n.failed.recall(text); ok {
		return e
	}
	return nil
}
