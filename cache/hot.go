package cache

import "sync/atomic"

// hot is a table of the copies that ristretto has lately been asked for, read without a lock.
// It is there for speed alone: ristretto's own Get takes about as long as all that a hit is
// allowed, and its lock is shared by all cores. One hit in sampleEvery still goes to
// ristretto, so that it goes on knowing what is asked for often; what it evicts leaves the
// table too, so the table holds next to nothing that ristretto does not.
type hot[V any] []atomic.Pointer[held[V]]

const (
	fewSlots    = 1 << 4
	manySlots   = 1 << 14 // 128 KiB of pointers
	hotSize     = 4 << 10 // the cost up to which a copy may be in the table
	sampleEvery = 1 << 6
)

// newHot makes a slot for every 4 KiB of the budget: even one full of stragglers could hold
// no more than about that.
func newHot[V any](budget int64) hot[V] {
	return make(hot[V], powerOfTwo(budget/hotSize, fewSlots, manySlots))
}

func (t hot[V]) at(hash uint64) *atomic.Pointer[held[V]] {
	return &t[hash>>32&uint64(len(t)-1)]
}

func (t hot[V]) put(h *held[V]) {
	if h.cost() <= hotSize {
		t.at(h.hash).Store(h)
	}
}

// remove takes h out, if it is what is there.
func (t hot[V]) remove(h *held[V]) {
	if h != nil {
		t.at(h.hash).CompareAndSwap(h, nil)
	}
}
