package main

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestCallersWalkATraceTogetherAndBeginAgain(t *testing.T) {
	w := &workload{names: []string{"a", "b"}, walk: []uint32{0, 0, 1}}
	one, two := w.caller(nil), w.caller(nil)
	if got := []string{one(), two(), one(), two(), one(), two()}; !slices.Equal(got, []string{"a", "a", "b", "a", "a", "b"}) {
		t.Error(got)
	}
	one()
	w.reset()
	if got := []string{two(), two(), two()}; !slices.Equal(got, []string{"a", "a", "b"}) {
		t.Error("after a reset:", got)
	}
}

func TestDrawnKeysAreZipfAndTheSameForTheSameCaller(t *testing.T) {
	w := drawnKeys(100)
	draw := func() (keys []string) {
		next := w.caller(rand.New(rand.NewPCG(3, 1)))
		for range 10_000 {
			keys = append(keys, next())
		}
		return keys
	}
	keys := draw()
	if !slices.Equal(keys, draw()) {
		t.Error("two draws differ")
	}
	times := map[string]int{}
	for _, k := range keys {
		times[k]++
	}
	if len(times) < 50 || times["hot"] < 5*times["key-9"] {
		t.Errorf("%d different keys, the first %d times, the tenth %d", len(times), times["hot"], times["key-9"])
	}
}

func TestOneKeyIsAlwaysTheHotOne(t *testing.T) {
	if got := drawnKeys(1).caller(nil)(); got != hotKey {
		t.Error(got)
	}
}
