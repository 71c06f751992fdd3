package cache

import (
	"sync"
	"time"
)

// recent is an exact map of what was kept within about the last second. It is asked when
// ristretto does not have a key: there a new key becomes visible late, or is refused by a full
// cache, and the value just loaded must be served to the next call all the same.
type recent[V any] struct {
	budget int64

	mu    sync.Mutex // guards what follows
	held  map[uint64]*held[V]
	queue []*held[V] // in the order of keeping, with what has been replaced since
	ages  []time.Time
	bytes int64
	sweep *time.Timer // nil while the queue is empty
	ended bool
}

const recently = time.Second

func newRecent[V any](budget int64) *recent[V] {
	return &recent[V]{budget: budget, held: map[uint64]*held[V]{}}
}

func (r *recent[V]) get(hash uint64) *held[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held[hash]
}

// put keeps h, and drops the oldest beyond the budget. What is larger than the budget is not
// kept. It returns what was there for the key.
func (r *recent[V]) put(h *held[V]) (old *held[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old = r.held[h.hash]
	if r.ended || h.cost() > r.budget {
		delete(r.held, h.hash)
		return old
	}
	r.held[h.hash] = h
	r.queue, r.ages = append(r.queue, h), append(r.ages, time.Now())
	r.bytes += h.cost()
	for r.bytes > r.budget {
		r.shiftLocked()
	}
	if r.sweep == nil {
		r.sweep = time.AfterFunc(recently, r.age)
	}
	return old
}

func (r *recent[V]) shiftLocked() {
	h := r.queue[0]
	r.queue[0] = nil
	r.queue, r.ages = r.queue[1:], r.ages[1:]
	r.bytes -= h.cost()
	if r.held[h.hash] == h {
		delete(r.held, h.hash)
	}
}

// age drops what has been here for long enough.
func (r *recent[V]) age() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) > 0 && time.Since(r.ages[0]) >= recently {
		r.shiftLocked()
	}
	r.sweep = nil
	if len(r.queue) > 0 {
		r.sweep = time.AfterFunc(recently-time.Since(r.ages[0]), r.age)
		return
	}
	r.queue, r.ages = nil, nil // gives the arrays back after a burst
}

// drop forgets a key at once, and returns what was there; its place in the queue runs out by
// itself.
func (r *recent[V]) drop(hash uint64) *held[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.held[hash]
	delete(r.held, hash)
	return old
}

func (r *recent[V]) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended, r.held, r.queue = true, nil, nil
	if r.sweep != nil {
		r.sweep.Stop()
	}
}
