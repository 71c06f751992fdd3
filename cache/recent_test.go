package cache

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// sized is a copy that costs n.
func sized(text string, n int64) *held[int] {
	h := heldAs(text, 0)
	h.size = int(n - h.cost())
	return h
}

// look calls f while nothing changes.
func (r *recent[V]) look(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *recent[V]) count() (n int) {
	r.look(func() { n = len(r.held) })
	return n
}

// has fails unless r holds just these.
func (r *recent[V]) has(t *testing.T, all ...*held[V]) {
	t.Helper()
	equal(t, "copies held", r.count(), len(all))
	for _, h := range all {
		if got := r.get(h.hash); got != h {
			t.Errorf("%s: got %v, want %v", h.text, got, h)
		}
	}
}

func TestRecentLoadsAreHeldForAboutASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecent[int](1 << 20)
		a, b := heldAs("a", 1), heldAs("b", 2)
		r.put(a)
		time.Sleep(600 * time.Millisecond)
		r.put(b)
		time.Sleep(399 * time.Millisecond)
		r.has(t, a, b)
		time.Sleep(2 * time.Millisecond)
		r.has(t, b)
		time.Sleep(598 * time.Millisecond)
		r.has(t, b)
		time.Sleep(2 * time.Millisecond)
		r.has(t)
		r.look(func() {
			if r.sweep != nil || r.queue != nil || r.ages != nil || r.bytes != 0 {
				t.Errorf("an empty map keeps a timer, %d places and %d bytes", cap(r.queue), r.bytes)
			}
		})
		r.put(a) // it works again
		r.has(t, a)
	})
}

func TestANewerLoadIsHeldForItsOwnSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecent[int](1 << 20)
		old, newer := heldAs("k", 1), heldAs("k", 2)
		equal(t, "before the first", r.put(old), nil)
		time.Sleep(900 * time.Millisecond)
		equal(t, "before the second", r.put(newer), old)
		time.Sleep(500 * time.Millisecond)
		r.has(t, newer)
		time.Sleep(501 * time.Millisecond)
		r.has(t)
	})
}

func TestTheOldestRecentLoadsGoFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecent[int](3000)
		var all []*held[int]
		for i := range 10 {
			all = append(all, sized(fmt.Sprint(i), 1000))
			r.put(all[i])
			r.has(t, all[max(0, i-2):]...)
		}
		r.put(sized("large", 2500))
		equal(t, "copies beside a large one", r.count(), 1)
	})
}

func TestALoadLargerThanTheBudgetIsNotHeldAndTakesTheOldOneAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecent[int](3000)
		small, other := sized("k", 500), sized("other", 500)
		r.put(small)
		r.put(other)
		equal(t, "what was there", r.put(sized("k", 3001)), small)
		r.has(t, other)
		r.put(sized("k", 3000)) // just fits
		equal(t, "copies held", r.count(), 1)
	})
}

func TestADroppedLoadIsGoneAtOnceAndItsPlaceLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecent[int](1 << 20)
		a, b := heldAs("a", 1), heldAs("b", 2)
		r.put(a)
		r.put(b)
		r.drop(a.hash)
		r.drop(hashOf("never there"))
		r.has(t, b)
		again := heldAs("a", 3)
		time.Sleep(500 * time.Millisecond)
		r.put(again)
		time.Sleep(501 * time.Millisecond)
		r.has(t, again) // the place of the first is not its own
		time.Sleep(time.Second)
		r.look(func() { equal(t, "bytes in the end", r.bytes, 0) })
	})
}

func TestRecentLoadsStayWithinTheirBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 20_000
		r := newRecent[int](budget)
		for range 5000 {
			text := fmt.Sprint(rand.IntN(100))
			switch rand.IntN(10) {
			case 0:
				r.drop(hashOf(text))
			case 1:
				time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
			default:
				r.put(sized(text, 450+rand.Int64N(5000)))
			}
			synctest.Wait()
			r.look(func() { r.addsUp(t, budget) })
		}
	})
}

// addsUp fails unless the books are right. r.mu is held.
func (r *recent[V]) addsUp(t *testing.T, budget int64) {
	t.Helper()
	var queued, held int64
	for _, h := range r.queue {
		queued += h.cost()
	}
	for hash, h := range r.held {
		held += h.cost()
		equal(t, "hash", hash, h.hash)
	}
	if queued != r.bytes || held > queued || queued > budget || len(r.queue) != len(r.ages) {
		t.Fatalf("%d bytes are counted, %d queued, %d held, of %d", r.bytes, queued, held, budget)
	}
	if len(r.ages) > 0 && time.Since(r.ages[0]) > recently {
		t.Fatalf("the oldest is here for %v", time.Since(r.ages[0]))
	}
}

func TestAClosedMapOfRecentLoadsHoldsNothingAndLeavesNoTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecent[int](1 << 20)
		a := heldAs("a", 1)
		r.put(a)
		r.close()
		r.close()
		r.put(heldAs("b", 2))
		r.drop(a.hash)
		r.has(t)
		r.look(func() {
			if r.queue != nil {
				t.Error("something is held after closing")
			}
			equal(t, "timer runs", r.sweep != nil && r.sweep.Stop(), false)
		})
	})
}

func TestTheShareOfRecentLoadsIsASixteenth(t *testing.T) {
	l := tierOf[int](t, roomyBudget)
	equal(t, "budget", l.recent.budget, roomyBudget/16)
}
