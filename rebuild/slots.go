package rebuild

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"
)

// slots is the bulkhead in front of the database: so many loads at once, a quarter of them
// in the background.
type slots struct {
	all        *semaphore.Weighted
	background *semaphore.Weighted
	waiting    atomic.Int64
	longest    int64 // that the queue may be
}

// queuePer is how many loads may wait for each slot.
const queuePer = 10

func newSlots(n int) *slots {
	return &slots{
		all:        semaphore.NewWeighted(int64(n)),
		background: semaphore.NewWeighted(int64(quarter(n))),
		longest:    queuePer * int64(n),
	}
}

func quarter(n int) int { return max(1, n/4) }

var errQueueFull = errors.New("too many loads wait for a slot")

// take waits for a slot as long as ctx allows.
func (s *slots) take(ctx context.Context) (giveBack func(), err error) {
	giveBack = func() { s.all.Release(1) }
	if s.all.TryAcquire(1) {
		return giveBack, nil
	}
	defer s.waiting.Add(-1)
	if s.waiting.Add(1) > s.longest {
		return nil, errQueueFull
	}
	if err := s.all.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return giveBack, nil
}

// spare takes a slot for background work if there is one.
func (s *slots) spare() (giveBack func(), ok bool) {
	if !s.background.TryAcquire(1) {
		return nil, false
	}
	if !s.all.TryAcquire(1) {
		s.background.Release(1)
		return nil, false
	}
	return func() { s.all.Release(1); s.background.Release(1) }, true
}

// spare takes a slot for a load of k in the background, unless another load of it is stuck.
func (n *Node) spare(k Key) (giveBack func(), ok bool) {
	if n.stuck.bars(k.Text) == nil {
		giveBack, ok = n.slots.spare()
	}
	if !ok {
		n.Counts.Dropped.Add(1)
	}
	return giveBack, ok
}

// stuck are the loads that were abandoned and still run: their loader ignores its context. Each
// holds memory, and perhaps a connection, so their number is bounded: once there are many, a key
// that has one is not loaded again until it ends.
type stuck struct {
	many int

	mu    sync.Mutex // guards what follows
	total int
	of    map[string]int
}

func newStuck(slots int) *stuck { return &stuck{many: quarter(slots), of: map[string]int{}} }

func (s *stuck) add(key string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total += n
	if s.of[key] += n; s.of[key] == 0 {
		delete(s.of, key)
	}
}

// bars returns why key is not to be loaded, or nil.
func (s *stuck) bars(key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total < s.many || s.of[key] <= 0 {
		return nil
	}
	return fmt.Errorf("%w: a load of this key was abandoned and still runs, as do %d in all: their loader ignores its context",
		ErrOverloaded, s.total)
}
