package cache

import "sync/atomic"

// hot is a small table of the copies that ristretto has lately been asked for, read without a
// lock. It is there for speed alone: ristretto's own Get takes about as long as all that a
// hit is allowed, and its lock is shared by all cores. One hit in sampleEvery still goes to
// ristretto, so that it goes on knowing what is asked for often; what it evicts leaves the
// table too.
type hot[V any] struct {
	slots [hotSlots]atomic.Pointer[held[V]]
	most  int64 // the cost up to which a copy may be in the table: it bounds the whole
}

const (
	hotSlots    = 1 << 10
	sampleEvery = 1 << 6
)

func (t *hot[V]) at(hash uint64) *atomic.Pointer[held[V]] {
	return &t.slots[hash>>32&(hotSlots-1)]
}

func (t *hot[V]) put(h *held[V]) {
	if h.cost() <= t.most {
		t.at(h.hash).Store(h)
	}
}

// remove takes h out, if it is what is there.
func (t *hot[V]) remove(h *held[V]) {
	if h != nil {
		t.at(h.hash).CompareAndSwap(h, nil)
	}
}
