package rebuild

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// failures is this process's memory of failed loads: it is asked when Redis cannot be, and
// for loads without a lease. Two generations take turns, so that a failure is forgotten
// some time after its back-off without a timer of its own.
type failures struct {
	clock  *link.Clock
	policy Policy

	mu       sync.Mutex // guards what follows
	new, old map[string]failure
	turn     *time.Timer // nil while there is nothing to forget
	closed   bool
}

type failure struct {
	err   error
	until link.Instant
	count int
}

// maxFailures bounds a generation; a full one takes its turn early.
const maxFailures = 1 << 16

func newFailures(clock *link.Clock, p Policy) *failures {
	return &failures{clock: clock, policy: p}
}

// record remembers that the load of key failed, and says how long to leave it alone.
func (f *failures) record(key string, err error) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	count := f.findLocked(key).count + 1
	pause := f.policy.pauseAfter(count, rand.Float64())
	if f.closed || f.policy.Backoff == 0 {
		return pause
	}
	if len(f.new) >= maxFailures {
		f.old, f.new = f.new, nil
	}
	if f.new == nil {
		f.new = map[string]failure{}
	}
	f.new[key] = failure{err: err, until: f.clock.Now().Add(pause), count: count}
	if f.turn == nil {
		f.turn = time.AfterFunc(f.life(), f.takeTurn)
	}
	return pause
}

// life is how long a generation grows: twice the longest back-off, so that a count outlives
// the pause that it led to.
func (f *failures) life() time.Duration { return 2 * backoffGrowth * f.policy.Backoff }

func (f *failures) takeTurn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old, f.new = f.new, nil
	f.turn = nil
	if len(f.old) > 0 && !f.closed {
		f.turn = time.AfterFunc(f.life(), f.takeTurn)
	}
}

func (f *failures) findLocked(key string) failure {
	if e, ok := f.new[key]; ok {
		return e
	}
	return f.old[key]
}

// recall returns the failure of key while its back-off lasts.
func (f *failures) recall(key string) (*BackoffError, bool) {
	f.mu.Lock()
	e := f.findLocked(key)
	f.mu.Unlock()
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

// clear forgets key.
func (f *failures) clear(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.new, key)
	delete(f.old, key)
}

func (f *failures) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.new, f.old = true, nil, nil
	if f.turn != nil {
		f.turn.Stop()
	}
}
