package rebuild

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestTurnsAreTakenInOrder(t *testing.T) {
	var ts turns
	first, endFirst := ts.take("k")
	equal(t, "the first waits", first != nil, false)
	second, endSecond := ts.take("k")
	third, endThird := ts.take("k")
	over := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	equal(t, "the second's turn", over(second), false)
	endFirst()
	equal(t, "the second's turn", over(second), true)
	equal(t, "the third's turn", over(third), false)
	endSecond()
	equal(t, "the third's turn", over(third), true)
	endThird()
	equal(t, "left behind", len(ts.last), 0)
}

func TestTurnsOfOtherKeysAreTheirOwn(t *testing.T) {
	var ts turns
	_, endA := ts.take("a")
	b, endB := ts.take("b")
	equal(t, "b waits", b != nil, false)
	endB()
	endA()
	equal(t, "left behind", len(ts.last), 0)
}

func TestOneTurnAtATimeHoweverManyTakeOne(t *testing.T) {
	var ts turns
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				before, end := ts.take("k")
				if before != nil {
					<-before
				}
				if n := inside.Add(1); n > most.Load() {
					most.Store(n)
				}
				inside.Add(-1)
				end()
			}
		})
	}
	wg.Wait()
	equal(t, "most at once", most.Load(), 1)
	equal(t, "left behind", len(ts.last), 0)
}

func TestSlotsAreAsManyAsThereAreAndAQuarterForTheBackground(t *testing.T) {
	for n, background := range map[int]int{1: 1, 3: 1, 4: 1, 8: 2, 16: 4} {
		s := newSlots(n)
		var back []func()
		for range background {
			giveBack, ok := s.spare()
			equal(t, "spare", ok, true)
			back = append(back, giveBack)
		}
		_, ok := s.spare()
		equal(t, "one spare too many", ok, false)
		for range n - background {
			giveBack, err := s.take(t.Context())
			must(t, err)
			back = append(back, giveBack)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := s.take(ctx); err == nil {
			t.Error("one slot too many")
		}
		cancel()
		for _, giveBack := range back {
			giveBack()
		}
		equal(t, "all slots are back", s.all.TryAcquire(int64(n)), true)
		equal(t, "all of the background too", s.background.TryAcquire(int64(background)), true)
	}
}

func TestBackgroundWorkLeavesTheLastSlotsToCallers(t *testing.T) {
	s := newSlots(1)
	giveBack, err := s.take(t.Context())
	must(t, err)
	if _, ok := s.spare(); ok {
		t.Fatal("a spare slot where there is none")
	}
	giveBack()
	if _, ok := s.spare(); !ok {
		t.Fatal("the refusal has cost the background its slot")
	}
}
