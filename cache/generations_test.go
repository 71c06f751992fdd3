package cache

import (
	"math"
	"math/bits"
	"testing"
)

func TestThereAreStripesForTheBudget(t *testing.T) {
	for _, tc := range []struct {
		budget int64
		want   int
	}{
		{1, fewStripes},
		{64 << 10, fewStripes},
		{2 << 20, 512},
		{2<<20 + 4096, 1024},
		{64 << 20, 1 << 14},
		{1 << 40, manyStripes},
		{math.MaxInt64, manyStripes},
	} {
		g := newGenerations(tc.budget)
		equal(t, "stripes", len(g), tc.want)
		equal(t, "bits set in the number of stripes", bits.OnesCount(uint(len(g))), 1)
	}
}

func TestEveryHashHasOneStripe(t *testing.T) {
	g := newGenerations(64 << 20)
	for _, hash := range []uint64{0, 1, 1 << 14, math.MaxUint64, 1 << 63} {
		before := g.of(hash).Load()
		g.of(hash).Add(1)
		equal(t, "generation", g.of(hash).Load(), before+1)
	}
	used := map[any]int{}
	for i := range 100_000 {
		used[g.of(hashOf(string(rune(i))))]++
	}
	if len(used) < len(g)*9/10 {
		t.Errorf("a hundred thousand keys use %d of %d stripes", len(used), len(g))
	}
}

func TestKeysThatShareAStripeCostEachOtherALookAndNoMore(t *testing.T) {
	l := tierOf[int](t, smallBudget)
	a, b := &held[int]{text: "a", hash: 1}, &held[int]{text: "b", hash: 1 + fewStripes}
	l.keep(a)
	l.keep(b)
	l.drop(keyWith("a", 1))
	equal(t, "the neighbour", l.lookup(b.hash, "b", asking), nil)
	again := &held[int]{text: "b", hash: b.hash}
	l.keep(again)
	equal(t, "the neighbour, kept again", l.lookup(b.hash, "b", asking), again)
}
