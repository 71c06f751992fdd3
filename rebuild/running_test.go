package rebuild

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// keeps tells whether t may keep.
func (r *running) keeps(t *ticket) bool { return r.keep(t, func() {}) }

func TestAReadKeepsWhatItBrings(t *testing.T) {
	r := newRunning()
	a := r.begin("k", false)
	equal(t, "one", r.keeps(a), true)
	equal(t, "again", r.keeps(a), true)
	equal(t, "valid", r.valid(a), true)
}

func TestNothingThatWasUnderWayAtAnInvalidationIsKept(t *testing.T) {
	r := newRunning()
	read, load, other := r.begin("k", false), r.begin("k", true), r.begin("another", false)
	dropped := 0
	r.forget("k", func() { dropped++ })
	for _, old := range []*ticket{read, load} {
		equal(t, "valid", r.valid(old), false)
		equal(t, "stored", r.keep(old, func() { t.Error("it was stored all the same") }), false)
	}
	later := r.begin("k", false)
	equal(t, "dropped", dropped, 1)
	equal(t, "what began later", r.keeps(later), true)
	equal(t, "another key", r.keeps(other), true)
	for _, all := range []*ticket{read, load, later, other} {
		r.end(all)
	}
	equal(t, "empty", r.empty(), true)
}

func TestAKeyWithNothingUnderWayIsDroppedToo(t *testing.T) {
	r := newRunning()
	dropped := 0
	r.forget("k", func() { dropped++ })
	equal(t, "dropped", dropped, 1)
	equal(t, "empty", r.empty(), true)
}

func TestWhatALoadBringsIsNewerThanReadsUnderWayAndEarlierLoads(t *testing.T) {
	r := newRunning()
	read, earlier := r.begin("k", false), r.begin("k", true)
	load := r.begin("k", true)
	lateRead, later := r.begin("k", false), r.begin("k", true)
	other := r.begin("another", false)
	equal(t, "the load", r.keeps(load), true)
	for what, tc := range map[string]struct {
		t    *ticket
		want bool
	}{
		"a read that began before": {read, false}, "a load that began before": {earlier, false},
		"a read that began after": {lateRead, false}, "a load that began after": {later, true},
		"a read of another key": {other, true}, "the load again": {load, true},
	} {
		equal(t, what, r.valid(tc.t), tc.want)
	}
	equal(t, "a read that begins now", r.keeps(r.begin("k", false)), true)
}

// TestOfTwoReadsOneIsKept: nobody knows which of them Redis answered first.
func TestOfTwoReadsOneIsKept(t *testing.T) {
	r := newRunning()
	read, load, another := r.begin("k", false), r.begin("k", true), r.begin("k", false)
	r.keeps(read)
	equal(t, "load", r.valid(load), true)
	equal(t, "read", r.valid(another), false)
	equal(t, "a read that begins now", r.keeps(r.begin("k", false)), true)
}

func TestAVoidLoadVoidsNothing(t *testing.T) {
	r := newRunning()
	load := r.begin("k", true)
	r.forget("k", func() {})
	read := r.begin("k", false)
	equal(t, "the load", r.keeps(load), false)
	equal(t, "a read since", r.keeps(read), true)
}

func loadOf(key string) *load { return &load{key: Key{Text: key}} }

func TestNewcomersJoinTheLoadThatRuns(t *testing.T) {
	r := newRunning()
	first, second := loadOf("k"), loadOf("k")
	if r.join("k") != nil || r.lead(first) != first || r.lead(second) != first || r.join("k") != first {
		t.Fatal("the first to lead is not the one that is joined")
	}
	if r.join("another") != nil {
		t.Fatal("the load of another key is joined")
	}
	r.leave(second) // which never led
	if r.join("k") != first {
		t.Fatal("a load that did not lead took the one that does from newcomers")
	}
	r.leave(first)
	r.leave(first)
	if r.join("k") != nil || !r.empty() {
		t.Fatal("a load that left is still there")
	}
}

func TestAnInvalidationTakesTheLoadFromNewcomers(t *testing.T) {
	r := newRunning()
	old, young := loadOf("k"), loadOf("k")
	r.lead(old)
	r.forget("k", func() {})
	if r.join("k") != nil || r.lead(young) != young {
		t.Fatal("the load from before is joined")
	}
	r.leave(old)
	if r.join("k") != young {
		t.Fatal("the end of the old load took the new one from newcomers")
	}
	r.leave(young)
	equal(t, "empty", r.empty(), true)
}

func TestARefreshTakesThePlaceOfTheLoadThatRuns(t *testing.T) {
	r := newRunning()
	old, refresh, third := loadOf("k"), loadOf("k"), loadOf("k")
	refresh.refresh = true
	r.lead(old)
	if r.lead(refresh) != refresh || r.lead(third) != refresh {
		t.Fatal("newcomers do not join the refresh")
	}
	r.leave(old)
	if r.join("k") != refresh {
		t.Fatal("the end of the old load took the refresh from newcomers")
	}
	r.leave(refresh)
	equal(t, "empty", r.empty(), true)
}

func TestTicketsAndLoadLeaveNoEntryBehindInWhateverOrderTheyEnd(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2, 0, 1}, {0, 0, 1, 1, 2, 2}} {
		r := newRunning()
		read, l := r.begin("k", false), loadOf("k")
		r.lead(l)
		own := r.begin("k", true)
		for _, i := range order {
			[]func(){func() { r.end(read) }, func() { r.end(own) }, func() { r.leave(l) }}[i]()
		}
		equal(t, "empty", r.empty(), true)
	}
}

// TestUnderConcurrencyNothingOlderThanAnInvalidationIsEverKept: what is stored and dropped is not
// guarded by anything but running itself, which the race detector sees.
func TestUnderConcurrencyNothingOlderThanAnInvalidationIsEverKept(t *testing.T) {
	r := newRunning()
	keys := []string{"a", "b", "c"}
	kept := map[string]uint64{}  // the turn of the ticket that has kept
	floor := map[string]uint64{} // no ticket with a lower one may keep any more
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				key := keys[rand.IntN(len(keys))]
				tk := r.begin(key, rand.IntN(2) == 0)
				l := loadOf(key)
				leads := r.lead(l) == l
				if rand.IntN(4) == 0 {
					r.forget(key, func() {
						delete(kept, key)
						floor[key] = r.turn + 1
					})
				}
				r.keep(tk, func() {
					if tk.turn < floor[key] {
						t.Errorf("ticket %d was kept after an invalidation at %d", tk.turn, floor[key])
					}
					kept[key] = tk.turn
				})
				if leads {
					r.leave(l)
				}
				r.end(tk)
			}
		})
	}
	wg.Wait()
	equal(t, "empty", r.empty(), true)
}
