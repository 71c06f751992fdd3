package cache

import (
	"math/bits"
	"sync/atomic"
)

// generations count the invalidations of each stripe of keys. A copy is good only while its
// stripe's generation is the one it was kept under: ristretto may apply a queued set after a
// later delete, and this is what keeps that copy from coming back. Keys that share a stripe
// cost each other a look at Redis, no more.
type generations []atomic.Uint64

const (
	fewStripes  = 1 << 8
	manyStripes = 1 << 16
)

// newGenerations makes a stripe for every 4 KiB of the budget.
func newGenerations(budget int64) generations {
	return make(generations, powerOfTwo(budget>>12, fewStripes, manyStripes))
}

// powerOfTwo is the first one that is not below n, from few to many.
func powerOfTwo(n, few, many int64) int {
	return 1 << bits.Len64(uint64(min(max(n, few), many)-1))
}

func (g generations) of(hash uint64) *atomic.Uint64 { return &g[hash&uint64(len(g)-1)] }
