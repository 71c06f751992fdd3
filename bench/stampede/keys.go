package main

import (
	"math/rand/v2"
	"strconv"
	"sync/atomic"
)

// hotKey is the one key of a run without -keys and -trace.
const hotKey = "hot"

// workload says which key is read next.
type workload struct {
	names []string
	walk  []uint32 // a recorded sequence, as indexes into names; without one they are drawn
	step  atomic.Uint64
}

func openWorkload(s settings) (*workload, error) {
	if s.trace != "" {
		return readTrace(s.trace)
	}
	return drawnKeys(s.keys), nil
}

func drawnKeys(n int) *workload {
	w := &workload{names: []string{hotKey}}
	for i := 1; i < n; i++ {
		w.names = append(w.names, "key-"+strconv.Itoa(i))
	}
	return w
}

// reset starts a recorded sequence from its beginning.
func (w *workload) reset() { w.step.Store(0) }

// caller is the choice of keys for one caller. A recorded sequence has one position for all of them, and begins again at its end.
func (w *workload) caller(rng *rand.Rand) (next func() string) {
	switch {
	case w.walk != nil:
		return func() string { return w.names[w.walk[(w.step.Add(1)-1)%uint64(len(w.walk))]] }
	case len(w.names) == 1:
		return func() string { return w.names[0] }
	}
	zipf := rand.NewZipf(rng, 1.1, 1, uint64(len(w.names)-1))
	return func() string { return w.names[zipf.Uint64()] }
}
