package lock

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestT16ALeaseThatIsNoLongerInRedisIsLostWithTheNextRenewal(t *testing.T) {
	for situation, c := range map[string]struct {
		harm   func(s *server)
		reason Reason
		left   bool // what is there afterwards is not a lock
	}{
		"DEL":                {func(s *server) { s.Mini().Del("lk:x") }, Gone, false},
		"FLUSHALL":           {func(s *server) { s.Mini().FlushAll() }, Gone, false},
		"restart":            {func(s *server) { s.restart() }, Gone, false},
		"another string":     {func(s *server) { must(s.t, s.Mini().Set("lk:x", "theirs")) }, Overwritten, true},
		"a hash":             {func(s *server) { s.Mini().Del("lk:x"); s.Mini().HSet("lk:x", "f", "theirs") }, Overwritten, true},
		"a list":             {func(s *server) { s.Mini().Del("lk:x"); _, _ = s.Mini().Lpush("lk:x", "theirs") }, Overwritten, true},
		"another took it":    {func(s *server) { s.Mini().Del("lk:x"); lock(s.t, s.locker(), "x") }, Taken, false},
		"another had it too": {func(s *server) { s.Mini().Del("lk:x"); must(s.t, lock(s.t, s.locker(), "x").Unlock(s.t.Context())) }, Gone, false},
	} {
		t.Run(situation, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server) {
				k := s.locker()
				l := lock(t, k, "x")
				time.Sleep(time.Second)
				began := time.Now()
				c.harm(s)
				<-l.Context().Done()
				if took := time.Since(began); took > 10*time.Second/3 {
					t.Errorf("it was told after %v", took)
				}
				lost, ok := errors.AsType[*LostError](context.Cause(l.Context()))
				if !ok || lost.Reason != c.reason || lost.Name != "x" || lost.Fence != l.Fence() {
					t.Errorf("cause: %+v, want %v", lost, c.reason)
				}
				equal(t, "valid", l.Valid(), false)
				is2(t, l.Unlock(t.Context()), ErrLost, c.reason == Overwritten)
				_, err := k.TryLock(t.Context(), "x")
				if c.left {
					is(t, "who comes then", err, ErrConflict)
					equal(t, "names the key", strings.Contains(err.Error(), `"lk:x"`), true)
				}
				synctest.Wait()
				equal(t, "told", s.told(Lost), 1)
			})
		})
	}
}

// is2 fails unless err is of kind want, and a conflict if it should be.
func is2(t *testing.T, err, want error, conflict bool) {
	t.Helper()
	if !errors.Is(err, want) || isConflict(err) != conflict {
		t.Errorf("got %v, want %v, conflict %t", err, want, conflict)
	}
}

func TestT16TheFenceGrowsThoughTheKeyIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		last := int64(0)
		for range 10 {
			time.Sleep(time.Microsecond)
			l := lock(t, k, "x")
			if l.Fence() <= last {
				t.Errorf("fences: %d, then %d", last, l.Fence())
			}
			last = l.Fence()
			must(t, l.Unlock(t.Context()))
			s.Mini().FlushAll()
		}
	})
}

func TestAWaiterGoesOnThoughItsPlaceIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		lock(t, a.Locker, "x")
		got := make(chan *Lease)
		go func() { got <- lock(t, b.Locker, "x") }()
		time.Sleep(time.Second / 2)
		s.restart()
		began := time.Now()
		l := <-got
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("it had the lock after %v", took)
		}
		must(t, l.Unlock(t.Context()))
	})
}

func TestAWaiterOutlastsAShortOutageAndNoLongOne(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		l := lock(t, a.Locker, "x")
		got := make(chan error)
		go func() {
			l, err := b.Lock(t.Context(), "x")
			got <- errors.Join(err, l.Unlock(t.Context()))
		}()
		time.Sleep(time.Second)
		b.wire.Freeze()
		time.Sleep(1500 * time.Millisecond)
		b.wire.Thaw()
		time.Sleep(2 * time.Second)
		must(t, l.Unlock(t.Context()))
		must(t, <-got)

		l = lock(t, a.Locker, "x")
		go func() {
			_, err := b.Lock(t.Context(), "x")
			got <- err
		}()
		time.Sleep(time.Second)
		b.wire.Freeze()
		began := time.Now()
		is(t, "after a long one", <-got, ErrUnavailable)
		if took := time.Since(began); took < time.Second || took > 5*time.Second {
			t.Errorf("it gave up after %v", took)
		}
		b.wire.Thaw()
		time.Sleep(2 * time.Second)
		must(t, l.Unlock(t.Context()))
		equal(t, "free", s.free("x"), true)
	})
}

func TestALockIsNotHeldForLongerThanItMay(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		l := lock(t, k, "x", WithMaxHold(time.Minute))
		began := time.Now()
		<-l.Context().Done()
		equal(t, "held for", time.Since(began), time.Minute)
		is(t, "cause", context.Cause(l.Context()), ErrMaxHold)
		equal(t, "free", s.free("x"), false)
		time.Sleep(11 * time.Second)
		must(t, lock(t, k, "x", WithMaxHold(Off)).Unlock(t.Context()))
		for _, d := range []time.Duration{9 * time.Minute, time.Hour} {
			l := lock(t, k, "y", WithMaxHold(Off))
			time.Sleep(d)
			must(t, l.Context().Err())
			must(t, l.Unlock(t.Context()))
		}
	})
}

func TestALockHeldTooLongMayStillBeGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		l := lock(t, s.locker(), "x", WithMaxHold(time.Minute))
		<-l.Context().Done()
		must(t, l.Unlock(t.Context()))
		equal(t, "free", s.free("x"), true)
	})
}

func TestALongHoldIsWorthOneWarning(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		var log strings.Builder
		k := s.locker(WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		l := lock(t, k, "x", WithLease(3*time.Second), WithLabel("the label"))
		time.Sleep(2900 * time.Millisecond)
		equal(t, "before the lease is over", s.told(HeldLong), 0)
		time.Sleep(time.Minute)
		must(t, l.Unlock(t.Context()))
		equal(t, "after it", s.told(HeldLong), 1)
		quiet := lock(t, k, "y", WithLease(3*time.Second), WithHoldWarning(Off))
		time.Sleep(time.Minute)
		must(t, quiet.Unlock(t.Context()))
		equal(t, "switched off", s.told(HeldLong), 1)
		for _, want := range []string{"lock acquired", "lock=x", "key=lk:x", "token=" + l.hold.Token, "fence=", "lock released", "level=WARN", "held long", "hold="} {
			equal(t, "logged "+want, strings.Contains(log.String(), want), true)
		}
	})
}

func TestALeaseThatIsNotRenewedEndsByItself(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		l := lock(t, k, "x", WithoutRenewal(), WithLease(30*time.Second))
		began := time.Now()
		time.Sleep(20 * time.Second)
		must(t, l.Refresh(t.Context()))
		<-l.Context().Done()
		if took := time.Since(began); took < 49*time.Second || took > 50*time.Second {
			t.Errorf("it was held for %v", took)
		}
		is(t, "refresh after it", l.Refresh(t.Context()), ErrLost)
		is(t, "cause", context.Cause(l.Context()), ErrLost)
	})
}

func TestRefreshFindsOutThatTheLeaseIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		l := lock(t, k, "x")
		must(t, l.Refresh(t.Context()))
		s.Mini().Del("lk:x")
		is(t, "refresh", l.Refresh(t.Context()), ErrLost)
		is(t, "cause", context.Cause(l.Context()), ErrLost)
		is(t, "unlock", l.Unlock(t.Context()), ErrLost)
		is(t, "refresh of what was given back", func() error {
			l := lock(t, k, "x")
			must(t, l.Unlock(t.Context()))
			return l.Refresh(t.Context())
		}(), ErrReleased)
	})
}

func TestWhoTakesOverFromALostHolderIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a := s.node(WithLabel("the lost one"))
		lock(t, a.Locker, "x", WithLease(time.Second))
		a.wire.Freeze()
		time.Sleep(2 * time.Second)
		must(t, lock(t, s.locker(), "x").Unlock(t.Context()))
		a.wire.Thaw()
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range s.events {
			if e.Kind == HolderLost && e.Holder.Label == "the lost one" && e.Holder.PID == us.PID {
				return
			}
		}
		t.Errorf("events: %+v", s.events)
	})
}

func TestANilLeaseIsSafe(t *testing.T) {
	var l *Lease
	equal(t, "valid", l.Valid(), false)
	equal(t, "fence", l.Fence(), 0)
	equal(t, "name", l.Name(), "")
	equal(t, "deadline", l.Deadline().IsZero(), true)
	must(t, l.Unlock(t.Context()))
	equal(t, "context", l.Context().Err(), context.Canceled)
	if l.Refresh(t.Context()) == nil {
		t.Error("it was refreshed")
	}
}
