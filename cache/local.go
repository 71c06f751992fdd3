package cache

import (
	"sync"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/rebuild"
)

// local is the tier in this process: ristretto, and what it takes to keep promises on it. A
// nil local holds nothing.
type local[V any] struct {
	tier        *ristretto.Cache[uint64, *held[V]]
	hot         hot[V]
	recent      *recent[V]
	generations generations
	gate        gate

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
	l := &local[V]{hot: newHot[V](budget), recent: newRecent[V](budget / recentShare), generations: newGenerations(budget)}
	tier, err := ristretto.NewCache(&ristretto.Config[uint64, *held[V]]{
		NumCounters:        min(max(budget/countersPer, 1000), mostCounters),
		MaxCost:            budget,
		BufferItems:        64,
		IgnoreInternalCost: true, // overhead counts it
		OnExit:             l.hot.remove,
		OnReject:           l.refused,
	})
	l.tier = tier
	return l, err
}

// lookup returns the newest copy of a key, whatever its windows, or nil. It takes no lock that
// a writer holds for long, and allocates nothing. Which lookups go past the table is drawn by
// the low bits of now: a hit reads the clock anyway, and a random number would cost as much
// again as all the rest.
func (l *local[V]) lookup(hash uint64, text string, now link.Instant) *held[V] {
	if l == nil || l.gate.shut.Load() {
		return nil
	}
	h := l.hot.at(hash).Load()
	if l.good(h, hash, text) && uint64(now)%sampleEvery != 0 {
		return h
	}
	if h = l.ask(hash, h); l.good(h, hash, text) {
		return h
	}
	if h = l.recent.get(hash); l.good(h, hash, text) {
		return h
	}
	return nil
}

// good tells whether h is a copy of this key that nothing has invalidated.
func (l *local[V]) good(h *held[V], hash uint64, text string) bool {
	return h != nil && h.hash == hash && h.text == text && !h.replaced.Load() &&
		h.generation == l.generations.of(hash).Load()
}

// ask asks ristretto, and brings the table up to date: seen is what it had.
func (l *local[V]) ask(hash uint64, seen *held[V]) *held[V] {
	inside, ok := l.gate.enter()
	if !ok {
		return nil
	}
	defer inside.Add(-1)
	h, ok := l.tier.Get(hash)
	if !ok {
		if seen != nil && seen.hash == hash {
			l.hot.remove(seen)
		}
		return nil
	}
	if newer := l.recent.get(hash); newer != nil && newer.serial > h.serial {
		return newer // still in ristretto's queue, behind h
	}
	if h != seen {
		l.hot.put(h)
	}
	return h
}

// keep makes h what the next lookup finds. Package rebuild does not let keep and drop overlap.
func (l *local[V]) keep(h *held[V]) {
	if l == nil {
		return
	}
	h.generation = l.generations.of(h.hash).Load()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.serial++
	h.serial = l.serial
	old, _ := l.tier.Get(h.hash)
	for _, older := range []*held[V]{old, l.recent.put(h), l.hot.at(h.hash).Load()} {
		if older != nil && older.hash == h.hash {
			older.replaced.Store(true) // wherever it is, or is still to become visible
		}
	}
	l.tier.Set(h.hash, h, h.cost()) // may be refused; recent has it then
}

// refused hears of a copy that ristretto did not take. It may have done so for an older one of the
// key, queued just before, which must not hide it.
func (l *local[V]) refused(item *ristretto.Item[*held[V]]) {
	h := item.Value
	if older, ok := l.tier.Get(h.hash); ok && older.serial < h.serial {
		older.replaced.Store(true)
	}
}

// drop makes sure that nothing kept before is found again.
func (l *local[V]) drop(k rebuild.Key) {
	if l == nil {
		return
	}
	l.generations.of(k.Hash).Add(1)
	l.recent.drop(k.Hash)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.tier.Del(k.Hash)
	}
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
	}
}
