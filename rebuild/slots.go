package rebuild

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// slots is the bulkhead in front of the database: so many loads at once, a quarter of them
// in the background.
type slots struct {
	all        *semaphore.Weighted
	background *semaphore.Weighted
}

func newSlots(n int) *slots {
	return &slots{
		all:        semaphore.NewWeighted(int64(n)),
		background: semaphore.NewWeighted(int64(max(1, n/4))),
	}
}

// take waits for a slot as long as ctx allows.
func (s *slots) take(ctx context.Context) (giveBack func(), err error) {
	if err := s.all.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return func() { s.all.Release(1) }, nil
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
