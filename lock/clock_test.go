package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// TestT23: the clock of Redis is what decides when a lease ends there, so setting it can end one early. It is told then, and
// fences go on growing.
func TestT23AClockThatIsSetForwardEndsLeasesAndSaysSo(t *testing.T) {
	s, clock := redistest.RealWithClock(t)
	heard := &teller{}
	a, b := onReal(t, s.Client(t), WithObserver(heard.hear)), onReal(t, s.Client(t))
	l := lock(t, a, "x", WithLease(5*time.Second))
	asks := lock(t, a, "y", WithLease(5*time.Second))
	clock.Shift(7 * time.Second) // the key still lives
	is(t, "who asks", asks.Refresh(t.Context()), ErrLost)
	reasonIs(t, asks, ClockStep)
	<-l.Context().Done() // who asked has noticed the step, so all leases are looked after
	reasonIs(t, l, ClockStep)
	next := lock(t, b, "x")
	if next.Fence() <= l.Fence() {
		t.Errorf("fences: %d, then %d", l.Fence(), next.Fence())
	}
	if heard.told(ClockStepped) == 0 {
		t.Error("the step was not told of")
	}
	clock.Shift(time.Minute) // now it does not
	is(t, "who has the lock then", next.Refresh(t.Context()), ErrLost)
	reasonIs(t, next, Gone)
	next = lock(t, b, "x")
	clock.Shift(0)
	must(t, next.Refresh(t.Context()))
	must(t, next.Unlock(t.Context()))
	last := lock(t, a, "x")
	if last.Fence() <= next.Fence() {
		t.Errorf("fences: %d, then %d", next.Fence(), last.Fence())
	}
	must(t, last.Unlock(t.Context()))
}

func TestT23AClockThatIsSetBackMakesNoLeaseLonger(t *testing.T) {
	s, clock := redistest.RealWithClock(t)
	a, b := onReal(t, s.Client(t)), onReal(t, s.Client(t))
	l := lock(t, a, "x", WithLease(500*time.Millisecond), WithoutRenewal())
	clock.Shift(-time.Minute)
	_, err := b.TryLock(t.Context(), "x")
	busy, ok := errors.AsType[*BusyError](err)
	if !ok || busy.Remaining > 500*time.Millisecond {
		t.Fatalf("who comes then: %v, %+v", err, busy)
	}
	next, err := b.Lock(t.Context(), "x", WithWait(2*time.Second))
	must(t, err)
	if next.Fence() <= l.Fence() {
		t.Errorf("fences: %d, then %d", l.Fence(), next.Fence())
	}
	must(t, next.Unlock(t.Context()))
}

func TestT23AClockThatStandsStillIsNoticed(t *testing.T) {
	s, clock := redistest.RealWithClock(t)
	heard := &teller{}
	k := onReal(t, s.Client(t), WithObserver(heard.hear), WithLease(time.Second))
	clock.Freeze()
	fence := int64(0)
	redistest.Eventually(t, 10*time.Second, func() bool {
		l := lock(t, k, "x")
		if l.Fence() <= fence {
			t.Errorf("fences: %d, then %d", fence, l.Fence())
		}
		fence = l.Fence()
		must(t, l.Unlock(t.Context()))
		return heard.told(ClockStepped) > 0
	}, "it was told of")
	l := lock(t, k, "x")
	<-time.After(2 * time.Second) // of renewals
	equal(t, "valid", l.Valid(), true)
	must(t, l.Unlock(t.Context()))
}

// TestT24: the monotonic clock stands still while a machine sleeps, the wall clock and Redis do not.
func TestT24AMachineThatHasSleptDoesNotBelieveItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		var slept atomic.Int64
		k.link.Clock.Wall = func() int64 { return time.Now().UnixNano() + slept.Load() }
		l := lock(t, k, "x")
		slept.Store(int64(9 * time.Second))
		equal(t, "valid after a short sleep", l.Valid(), true)
		slept.Store(int64(10 * time.Second))
		equal(t, "valid after a long one", l.Valid(), false)
		must(t, l.Refresh(t.Context()))
		equal(t, "valid when it was asked", l.Valid(), true)
		slept.Store(-int64(time.Hour))
		equal(t, "valid though somebody has set the clock back", l.Valid(), true)
		s.Mini().Del("lk:x")
		slept.Store(int64(time.Hour))
		equal(t, "valid after another sleep", l.Valid(), false)
		is(t, "when it is asked", l.Refresh(t.Context()), ErrLost)
	})
}

func reasonIs(t *testing.T, l *Lease, want Reason) {
	t.Helper()
	lost, ok := errors.AsType[*LostError](context.Cause(l.Context()))
	if !ok || lost.Reason != want {
		t.Errorf("cause: %v, want %q", context.Cause(l.Context()), want)
	}
}
