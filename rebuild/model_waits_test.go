package rebuild

import (
	"cmp"
	"slices"
)

// waits tell whether every wait ends: from each world that can be reached another can be in which nobody waits,
// by steps that need no luck. Those are of nodes, of Redis and of time; nobody has to call, write,
// fail or lose anything for them. It is looked for backwards, from the worlds in which nobody waits.
type waits struct {
	order []uint64    // of all worlds, nearest first
	quiet []uint64    // in which nobody waits
	steps [][2]uint64 // to, from
}

func (w *waits) merge(o *waits) {
	w.order = append(w.order, o.order...)
	w.quiet = append(w.quiet, o.quiet...)
	w.steps = append(w.steps, o.steps...)
}

func (w *waits) note(r *reached) {
	w.order = append(w.order, r.key)
	if !r.busy() {
		w.quiet = append(w.quiet, r.key)
	}
}

// busy tells whether a caller waits.
func (w *world) busy() bool {
	for i := range w.hosts {
		for k := range w.hosts[i].flying {
			if f := &w.hosts[i].flying[k]; f.phase != 0 && f.background == 0 {
				return true
			}
		}
	}
	return false
}

// endless is the nearest world from which no wait can end.
func (w *waits) endless() (key uint64, found bool) {
	byTarget := func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) }
	slices.SortFunc(w.steps, byTarget)
	ends := make(map[uint64]bool, len(w.order))
	for todo := w.quiet; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if ends[at] {
			continue
		}
		ends[at] = true
		i, _ := slices.BinarySearchFunc(w.steps, [2]uint64{at}, byTarget)
		for ; i < len(w.steps) && w.steps[i][0] == at; i++ {
			todo = append(todo, w.steps[i][1])
		}
	}
	for _, key := range w.order {
		if !ends[key] {
			return key, true
		}
	}
	return 0, false
}
