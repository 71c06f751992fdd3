package cache

import (
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/rebuild"
)

// local is the tier in this process: ristretto, and what it takes to keep promises on it. A
// copy that has been replaced or dropped is marked wherever it is or is still to become
// visible, so that no other key pays for it. A nil local holds nothing.
type local[V any] struct {
	tier    *ristretto.Cache[uint64, *held[V]]
	hot     hot[V]
	recent  *recent[V]
	queued  *queued[V]
	gate    gate
	refused atomic.Int64  // copies that ristretto did not take
	cleared atomic.Uint64 // the serial of the last copy that is not good any more

	mu     sync.Mutex // guards what follows, and writes to tier against its Close
	closed bool
	serial uint64 // of the last copy kept
}

const (
	countersPer  = 100     // bytes of budget for each of ristretto's frequency counters
	mostCounters = 1 << 24 // they take about 3 bytes each
	recentShare  = 16      // of the budget goes to recent
)

func newLocal[V any](budget int64) (*local[V], error) {
	if budget == 0 {
		return nil, nil
	}
	l := &local[V]{hot: newHot[V](budget), recent: newRecent[V](budget / recentShare), queued: newQueued[V]()}
	tier, err := ristretto.NewCache(l.config(budget))
	l.tier = tier
	return l, err
}

func (l *local[V]) config(budget int64) *ristretto.Config[uint64, *held[V]] {
	return &ristretto.Config[uint64, *held[V]]{
		NumCounters:        min(max(budget/countersPer, 1000), mostCounters),
		MaxCost:            budget,
		BufferItems:        64,
		IgnoreInternalCost: true, // overhead counts it
		Cost: func(h *held[V]) int64 { // is asked when ristretto takes a copy out of its queue
			l.queued.taken(h)
			return h.cost()
		},
		// A copy that was meant as a new one never becomes an update of what a queued delete, or
		// a queued older copy, is about to change.
		ShouldUpdate: func(h, _ *held[V]) bool { return h.update },
		OnExit:       l.hot.remove,
		OnReject:     func(*ristretto.Item[*held[V]]) { l.refused.Add(1) },
	}
}

// lookup returns the newest copy of a key, whatever its windows, or nil. It takes no lock that
// a writer holds for long, and allocates nothing. Which lookups go past the table is drawn by
// the low bits of now: a hit reads the clock anyway, and a random number would cost as much
// again as all the rest.
func (l *local[V]) lookup(hash uint64, text string, now link.Instant) *held[V] {
	if l == nil || l.gate.shut.Load() {
		return nil
	}
	h := l.hot.at(hash).get()
	if l.good(h, hash, text) && uint64(now)%sampleEvery != 0 {
		return h
	}
	if h = l.ask(hash); l.good(h, hash, text) {
		return h
	}
	if h = l.recent.get(hash); l.good(h, hash, text) {
		return h
	}
	return nil
}

// good tells whether h is a copy of this key that nobody has replaced or dropped.
func (l *local[V]) good(h *held[V], hash uint64, text string) bool {
	return h != nil && h.hash == hash && h.text == text && !h.replaced.Load() && h.serial > l.cleared.Load()
}

// ask asks ristretto, and brings the table up to date.
func (l *local[V]) ask(hash uint64) *held[V] {
	inside, ok := l.gate.enter()
	if !ok {
		return nil
	}
	defer inside.Add(-1)
	s := l.hot.at(hash)
	turn, seen := s.turn.Load(), s.copy.Load()
	h, ok := l.tier.Get(hash)
	switch {
	case ok:
		s.put(h, turn)
	case seen != nil && seen.hash == hash:
		l.hot.remove(seen)
	}
	return h
}

// keep makes h what the next lookup finds. Package rebuild does not let keep and drop overlap.
func (l *local[V]) keep(h *held[V]) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.serial++
	h.serial = l.serial
	old := l.replace(h.hash, l.recent.put(h))
	fits := h.cost() <= l.tier.MaxCost()
	// Ristretto changes what it shows in place, without making room for what costs more.
	h.update = fits && old.shown != nil && !old.moving && h.cost() <= old.shown.cost()
	if !h.update && old.any() || !fits {
		l.tier.Del(h.hash)
	}
	if !fits || !l.give(h) {
		l.refused.Add(1) // recent has it, if it is not too large even for that
	}
	l.hot.at(h.hash).turn.Add(1)
}

func (l *local[V]) give(h *held[V]) bool {
	l.queued.add(h)
	return l.tier.Set(h.hash, h, 0)
}

// replaced is what ristretto had of a key.
type replaced[V any] struct {
	shown  *held[V]
	moving bool // something of the key is on its way in, or out
}

func (r replaced[V]) any() bool { return r.shown != nil || r.moving }

// replace marks what there is of a key beside recent, which had this. What is queued is looked for
// first: it may be shown by the time that it is looked for there.
func (l *local[V]) replace(hash uint64, recent *held[V]) (old replaced[V]) {
	waiting := l.queued.get(hash)
	old.shown, _ = l.tier.Get(hash)
	old.moving = waiting != nil && waiting != old.shown || old.shown != nil && old.shown.replaced.Load()
	for _, older := range []*held[V]{old.shown, waiting, recent} {
		if older != nil {
			older.replaced.Store(true)
		}
	}
	return old
}

// drop makes sure that nothing kept before is found again.
func (l *local[V]) drop(k rebuild.Key) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	recent := l.recent.drop(k.Hash)
	if l.closed {
		return
	}
	l.replace(k.Hash, recent)
	l.tier.Del(k.Hash)
	l.hot.at(k.Hash).turn.Add(1)
}

// dropAll does so for all keys. The copies stay where they are until others need the room.
func (l *local[V]) dropAll() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleared.Store(l.serial)
}

func (l *local[V]) refusals() int64 {
	if l == nil {
		return 0
	}
	return l.refused.Load()
}

func (l *local[V]) close() {
	if l == nil {
		return
	}
	l.gate.close()
	l.recent.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.tier.Close()
		l.queued.clear()
	}
}
