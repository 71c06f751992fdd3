package cache

import (
	"sync/atomic"

	"github.com/levee-cache/levee/rebuild"
)

// held is a value in this process's memory: what package rebuild moves as a Copy. Once it can
// be seen by others, only its atomics change.
type held[V any] struct {
	// What a hit looks at stands together.
	text     string        // the key's, compared on every hit: the tiers know hashes only
	hash     uint64        // of text
	turn     atomic.Uint64 // of its place in the hot table when it was put there
	serial   uint64        // the order of keeping
	replaced atomic.Bool   // a newer copy has been kept since, or the key was dropped
	meta     rebuild.Meta
	value    V

	size   int  // of the encoded value
	update bool // ristretto may put it in the place of what it shows
}

// Meta is for package rebuild.
func (h *held[V]) Meta() *rebuild.Meta { return &h.meta }

// overhead is what an entry takes in memory beside value and key: the held itself, its
// identity, and ristretto's records of it.
const overhead = 400

func (h *held[V]) cost() int64 { return int64(h.size + len(h.text) + overhead) }
