package cache_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

var errAway = errors.New("the database is away")

func away(context.Context, string, int) error { return errAway }

// TestHowLongOneWaitsIsHisOwn: callers who give what is left of their deadlines share one flight.
func TestHowLongOneWaitsIsHisOwn(t *testing.T) {
	o := settings()
	o.MaxConcurrentLoads = 4
	for _, stale := range []bool{false, true} {
		t.Run(fmt.Sprint("stale ", stale), func(t *testing.T) {
			inBubble(t, 1, o, func(t *testing.T, f *fleet) {
				n, want := f.nodes[0], 1
				gets(t, n, "other", value("other", 1))
				if stale {
					gets(t, n, "k", value("k", 1))
					f.write("k")
					want = 2
					time.Sleep(11 * time.Second)
				}
				asked := n.faults.Delay(isAcquire, time.Millisecond)
				n.faults.Delay(redistest.Name("get", "getrange", "evalsha", "eval"), time.Millisecond)
				var all sync.WaitGroup
				for i := range 200 {
					all.Go(func() { calledWithin(t, n, "k", value("k", want), cache.WaitFresh(2*time.Second+time.Duration(i))) })
				}
				all.Wait()
				equal(t, "acquires", asked.Count(), 1)
				equal(t, "loads", f.queries("k"), want)
			})
		})
	}
}

func calledWithin(t *testing.T, n *node, key, want string, o cache.CallOption) {
	if v, err := n.Get(t.Context(), key, o); v != want || err != nil {
		t.Errorf("got %q, %v, want %q", v, err, want)
	}
}

// TestAPatientCallerWithNothingToServeTakesOnePlaceInTheQueue: his patience ends, and he waits on.
func TestAPatientCallerWithNothingToServeTakesOnePlaceInTheQueue(t *testing.T) {
	o := settings()
	o.MaxConcurrentLoads, o.WaitFresh = 1, 10*time.Millisecond
	alike(t, o, func(t *testing.T, s *source, n *node) {
		c := start(t.Context(), 1, "first", n)
		synctest.Wait()
		for i := range 8 { // the queue has ten places
			c.get(t.Context(), n, fmt.Sprint(i))
		}
		for _, g := range c.wait() {
			must(t, g.err)
		}
		equal(t, "loads", s.queries(), 9)
	})
}

func TestOneNoStoreCallIsOneLoadHoweverLongItTakes(t *testing.T) {
	o := settings()
	o.WaitFresh = 50 * time.Millisecond
	alike(t, o, func(t *testing.T, s *source, n *node) {
		s.query = takes(200 * time.Millisecond)
		calledWith(t, n, "k", value("k", 1), 200*time.Millisecond, cache.NoStore())
		time.Sleep(time.Second)
		equal(t, "loads of one call", s.queries(), 1)
	})
}

func TestAPatientCallerIsServedNothingPastItsWindows(t *testing.T) {
	o := settings()
	o.StaleWhileRevalidate, o.StaleIfError, o.LoadTimeout = 2*time.Second, 2*time.Second, time.Minute
	alike(t, o, func(t *testing.T, s *source, n *node) {
		gets(t, n, "k", value("k", 1))
		s.query = func(ctx context.Context, _ string, _ int) error {
			return errors.Join(pass(ctx, 30*time.Second), errAway)
		}
		time.Sleep(11900 * time.Millisecond) // the windows end after 12 s
		if e, err := n.GetEntry(t.Context(), "k", cache.WaitFresh(50*time.Second)); !errors.Is(err, errAway) {
			t.Errorf("got %q of %v, %v", e.Value, e.Age, err)
		}
	})
}

// TestWhoeverHasSomethingStaleIsServedItThroughAnOutage: also one who leaves no trace, also while the
// failure is remembered.
func TestWhoeverHasSomethingStaleIsServedItThroughAnOutage(t *testing.T) {
	for name, call := range map[string][]cache.CallOption{
		"NoStore": {cache.NoStore()},
		"both":    {cache.NoStore(), cache.WaitFresh(time.Second)},
		"patient": {cache.WaitFresh(time.Second)},
	} {
		for _, window := range []time.Duration{cache.Off, time.Hour} {
			t.Run(fmt.Sprint(name, "/", window > 0), func(t *testing.T) {
				o := settings()
				o.StaleWhileRevalidate, o.StaleIfError = window, time.Hour
				alike(t, o, func(t *testing.T, s *source, n *node) {
					gets(t, n, "k", value("k", 1))
					s.query = away
					time.Sleep(11 * time.Second)
					for range 5 {
						v, err := n.Get(t.Context(), "k", call...)
						must(t, err)
						equal(t, "value", v, value("k", 1))
					}
				})
			})
		}
	}
}

func TestAPatientCallerInTheQueueIsServedStaleIfTheLoadBeforeHimFails(t *testing.T) {
	o := settings()
	o.MaxConcurrentLoads = 1
	alike(t, o, func(t *testing.T, s *source, n *node) {
		gets(t, n, "k", value("k", 1))
		s.query = func(ctx context.Context, key string, _ int) error {
			if key == "k" {
				return errAway
			}
			return pass(ctx, time.Second)
		}
		time.Sleep(11 * time.Second)
		slow := start(t.Context(), 1, "slow", n)
		synctest.Wait()
		var all sync.WaitGroup
		for _, o := range []cache.CallOption{cache.WaitFresh(2 * time.Second), cache.WaitFresh(3 * time.Second)} {
			all.Go(func() { calledWithin(t, n, "k", value("k", 1), o) })
		}
		all.Wait()
		slow.wait()
	})
}

func TestCallersWhoHaveLeftDoNotFillTheQueue(t *testing.T) {
	o := settings()
	o.MaxConcurrentLoads = 1
	alike(t, o, func(t *testing.T, s *source, n *node) {
		s.query = takes(4 * time.Second)
		slow := start(t.Context(), 1, "slow", n)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		left := start(ctx, 0, "")
		for i := range 10 {
			left.get(ctx, n, fmt.Sprint("left ", i))
		}
		left.wait()
		synctest.Wait()
		s.query = takes(0)
		gets(t, n, "wanted", value("wanted", 1))
		slow.wait()
		equal(t, "loads", s.queries(), 2)
	})
}

func TestAFreshEntryHasNoErr(t *testing.T) {
	o := settings()
	o.EarlyRefresh = 100
	inBubble(t, 2, o, func(t *testing.T, f *fleet) {
		a, b := f.nodes[0], f.nodes[1]
		f.query = takes(50 * time.Millisecond)
		gets(t, a, "k", value("k", 1))
		f.query = away
		time.Sleep(9900 * time.Millisecond)
		gets(t, a, "k", value("k", 1))
		synctest.Wait()
		equal(t, "early refreshes that failed", a.Stats().Failures, 1)
		e, err := b.GetEntry(t.Context(), "k")
		must(t, err)
		equal(t, "state", e.State, cache.StateFresh)
		equal(t, "err", e.Err, nil)
		equal(t, "answers with a remembered failure", b.Stats().Backoffs, 0)
	})
}

func TestWhatIsHeldInMemoryIsNotSaidToComeFromRedis(t *testing.T) {
	o := settings()
	o.StaleWhileRevalidate, o.StaleIfError = cache.Off, time.Hour
	synctest.Test(t, func(t *testing.T) {
		s := newSource()
		n := local(t, s, o)
		gets(t, n, "k", value("k", 1))
		s.query = away
		time.Sleep(11 * time.Second)
		e, err := n.GetEntry(t.Context(), "k")
		must(t, err)
		equal(t, "source", e.Source, cache.SourceLocal)
	})
}
