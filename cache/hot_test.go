package cache

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// heat keeps h and has it in ristretto and in the table.
func heat(t *testing.T, l *local[int], h *held[int]) {
	t.Helper()
	l.keep(h)
	l.tier.Wait()
	equal(t, "found", l.lookup(h.hash, h.text, asking), h)
	if l.hot.at(h.hash).copy.Load() != h {
		t.Fatal("the copy is not in the table, so this test says nothing")
	}
}

func TestAHitInTheTableAsksNobody(t *testing.T) {
	l := tierOf[int](t, smallBudget)
	h := heldAs("k", 1)
	heat(t, l, h)
	l.recent.drop(h.hash)
	l.tier.Del(h.hash)
	l.put(h)
	for now := link.Instant(1); now < sampleEvery; now++ {
		equal(t, "found", l.lookup(h.hash, "k", now), h)
	}
	equal(t, "found when ristretto is asked", l.lookup(h.hash, "k", sampleEvery), nil)
	equal(t, "found after that", l.lookup(h.hash, "k", 1), nil)
}

// put puts h into the table.
func (l *local[V]) put(h *held[V]) {
	s := l.hot.at(h.hash)
	s.put(h, s.turn.Load())
}

func TestTheTableNeverServesAReplacedCopy(t *testing.T) {
	l := tierOf[int](t, smallBudget)
	old, newer := heldAs("k", 1), heldAs("k", 2)
	heat(t, l, old)
	l.keep(newer)
	finds(t, l, "k", newer)
	l.put(old) // by a reader that had asked before
	finds(t, l, "k", newer)
}

func TestTheTableNeverServesADroppedCopy(t *testing.T) {
	l := tierOf[int](t, smallBudget)
	h := heldAs("k", 1)
	heat(t, l, h)
	l.drop(keyOf("k"))
	finds(t, l, "k", nil)
	l.put(h) // by a reader that had asked before
	finds(t, l, "k", nil)
}

// A reader was given the copy by ristretto, which then evicted it: nobody finds it any more who
// could mark it.
func TestTheTableNeverServesACopyThatWasEvictedAndThenDropped(t *testing.T) {
	for situation, change := range map[string]func(l *local[int]){
		"dropped": func(l *local[int]) { l.drop(keyOf("k")) },
		"replaced": func(l *local[int]) {
			l.keep(heldAs("k", 2))
			l.recent.drop(hashOf("k"))
			l.tier.Wait()
			l.tier.Del(hashOf("k"))
		},
	} {
		t.Run(situation, func(t *testing.T) {
			l := tierOf[int](t, smallBudget)
			h := heldAs("k", 1)
			heat(t, l, h)
			s := l.hot.at(h.hash)
			turn := s.turn.Load()
			l.recent.drop(h.hash)
			l.tier.Del(h.hash)
			l.keep(heldAs("other", 1)) // ristretto is done with what came before
			l.tier.Wait()
			change(l)
			s.put(h, turn)
			finds(t, l, "k", nil)
		})
	}
}

// evict keeps others that are asked for more often until ristretto gives h up. It is for use in a bubble.
func evict(t *testing.T, l *local[int], h *held[int]) {
	t.Helper()
	for range 20 {
		for range 100 { // without asking for h, which would be a reason to keep it
			other := heldAs(fmt.Sprint("other", rand.Int()), 0)
			for range 128 {
				l.lookup(other.hash, other.text, asking)
			}
			synctest.Wait()
			l.keep(other)
			l.tier.Wait()
		}
		if _, ok := l.tier.Get(h.hash); !ok {
			return
		}
	}
	t.Fatal("the copy was not evicted")
}

func TestTheTableNeverServesAnEvictedCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := tierOf[int](t, smallBudget)
		h := heldAs("k", 1)
		heat(t, l, h)
		evict(t, l, h)
		time.Sleep(2 * recently)
		if l.hot.at(h.hash).copy.Load() == h {
			t.Error("the evicted copy is still in the table")
		}
		finds(t, l, "k", nil)
		l.close()
	})
}

// Keys of one place in the table take it from each other, and never answer for each other.
func TestKeysThatShareAPlaceInTheTableAreAllFound(t *testing.T) {
	l := tierOf[int](t, smallBudget)
	all := make([]*held[int], 5)
	for i := range all {
		all[i] = &held[int]{text: fmt.Sprint(i), hash: 7<<32 | uint64(i), value: i}
		l.keep(all[i])
	}
	l.tier.Wait()
	for now := range link.Instant(1000) {
		h := all[now%5]
		equal(t, "place", l.hot.at(h.hash), l.hot.at(all[0].hash))
		equal(t, "found", l.lookup(h.hash, h.text, now), h)
	}
	l.hot.remove(all[0])
	l.put(all[1])
	l.hot.remove(all[0]) // does not take out the other
	equal(t, "in the place", l.hot.at(all[0].hash).copy.Load(), all[1])
	l.hot.remove(nil)
}

func TestTheTableTakesNoMoreThanTheBudget(t *testing.T) {
	for _, budget := range []int64{64 << 10, smallBudget, 1 << 20, 64 << 20, 1 << 30} {
		slots := int64(len(newHot[int](budget)))
		if slots*hotSize > budget {
			t.Errorf("of %d bytes the table may hold %d", budget, slots*hotSize)
		}
	}
	l := tierOf[int](t, roomyBudget)
	fits, large := heldAs("fits", 1), heldAs("large", 1)
	fits.size = int(hotSize - fits.cost())
	large.size = int(hotSize-large.cost()) + 1
	l.put(fits)
	l.put(large)
	equal(t, "one that fits", l.hot.at(fits.hash).copy.Load(), fits)
	equal(t, "one that does not", l.hot.at(large.hash).copy.Load(), nil)
	l.keep(large)
	l.tier.Wait()
	finds(t, l, "large", large)
}

// What is read from the table alone would look forgotten to ristretto, and be evicted.
func TestRistrettoIsKeptInformedOfWhatTheTableServes(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector sync.Pool forgets, and with it ristretto what is asked for")
	}
	synctest.Test(t, func(t *testing.T) {
		l := tierOf[int](t, smallBudget)
		h := heldAs("k", 1)
		heat(t, l, h)
		for round := range 20 {
			for now := range link.Instant(64 * sampleEvery) { // ristretto counts reads 64 at a time
				if got := l.lookup(h.hash, "k", now); got != h {
					t.Fatalf("round %d: found %v", round, got)
				}
			}
			synctest.Wait() // it counts in a goroutine of its own, and drops what comes too fast
			for i := range 100 {
				l.keep(heldAs(fmt.Sprint("newcomer", round, "-", i), i))
			}
			l.tier.Wait()
		}
		if _, ok := l.tier.Get(h.hash); !ok {
			t.Error("the hottest copy of all was evicted")
		}
		time.Sleep(2 * recently)
		l.close()
	})
}
