package cache

import "sync"

// queued are the copies that ristretto has been given and may not show yet: it takes new keys
// out of a queue in the background. Whoever drops a key, or keeps a newer copy of it, finds
// here what would otherwise become visible later.
type queued[V any] struct {
	mu    sync.Mutex // guards what follows
	last  map[uint64]*held[V]
	order []*held[V] // by their serial numbers
}

func newQueued[V any]() *queued[V] { return &queued[V]{last: map[uint64]*held[V]{}} }

func (q *queued[V]) get(hash uint64) *held[V] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last[hash]
}

// add notes h before it is given to ristretto.
func (q *queued[V]) add(h *held[V]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last[h.hash] = h
	q.order = append(q.order, h)
}

// taken hears that ristretto takes h out of its queue: it is done with all that came before, and
// what it could not queue it will never show.
func (q *queued[V]) taken(h *held[V]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.order) > 0 && q.order[0].serial < h.serial {
		first := q.order[0]
		q.order[0] = nil
		q.order = q.order[1:]
		if q.last[first.hash] == first {
			delete(q.last, first.hash)
		}
	}
}

func (q *queued[V]) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.last, q.order = map[uint64]*held[V]{}, nil
}
