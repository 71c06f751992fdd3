package cache

import (
	"math/bits"
	"sync/atomic"
)

// hot is a table of the copies that ristretto has lately been asked for, read without a lock.
// It is there for speed alone: ristretto's own Get takes about as long as all that a hit is
// allowed, and its lock is shared by all cores. One hit in sampleEvery still goes to
// ristretto, so that it goes on knowing what is asked for often; what it evicts leaves the
// table too, so the table holds next to nothing that ristretto does not.
type hot[V any] []slot[V]

// slot is one place of the table. A reader puts a copy there some time after ristretto gave it
// to him: if the turn has changed since, the copy may have been dropped in between.
type slot[V any] struct {
	copy atomic.Pointer[held[V]]
	turn atomic.Uint64 // changes with every keep and drop of a key of this place
}

const (
	fewSlots    = 1 << 4
	manySlots   = 1 << 14 // 256 KiB
	hotSize     = 4 << 10 // the cost up to which a copy may be in the table
	sampleEvery = 1 << 6
)

// newHot makes a slot for every 4 KiB of the budget, at the nearest power of two above: even
// one full of stragglers could hold no more than about that.
func newHot[V any](budget int64) hot[V] {
	n := min(max(budget/hotSize, fewSlots), manySlots)
	return make(hot[V], 1<<bits.Len64(uint64(n-1)))
}

func (t hot[V]) at(hash uint64) *slot[V] { return &t[hash>>32&uint64(len(t)-1)] }

// remove takes h out, if it is what is there.
func (t hot[V]) remove(h *held[V]) {
	if h != nil {
		t.at(h.hash).copy.CompareAndSwap(h, nil)
	}
}

// get returns a copy, of whatever key, that nobody has dropped since it was put here.
func (s *slot[V]) get() *held[V] {
	h := s.copy.Load()
	if h != nil && h.turn.Load() != s.turn.Load() {
		return nil
	}
	return h
}

// put puts h here, that ristretto has given since the turn was what it is said to be.
func (s *slot[V]) put(h *held[V], turn uint64) {
	if h.cost() > hotSize || s.copy.Load() == h && h.turn.Load() == turn {
		return
	}
	h.turn.Store(turn)
	s.copy.Store(h)
}
