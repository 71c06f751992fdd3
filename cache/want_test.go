package cache_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/cache"
)

// calledWith calls once, and checks what it brings and when.
func calledWith(t *testing.T, n *node, key, want string, took time.Duration, options ...cache.CallOption) {
	t.Helper()
	began := time.Now()
	v, err := n.Get(t.Context(), key, options...)
	if v != want || err != nil || time.Since(began) != took {
		t.Errorf("got %q, %v after %v, want %s after %v", v, err, time.Since(began), want, took)
	}
}

// alike runs body in a bubble, on a node with Redis and on one without.
func alike(t *testing.T, o cache.Options, body func(*testing.T, *source, *node)) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprint("with Redis: ", shared), func(t *testing.T) {
			inBubble(t, 0, o, func(t *testing.T, f *fleet) {
				if shared {
					f.grow(1)
					body(t, f.source, f.nodes[0])
				} else {
					body(t, f.source, local(t, f.source, o))
				}
			})
		})
	}
}

// pastTTL loads k and lets its fresh time go by. From then on a load takes 2 s. It is for use in a
// bubble.
func pastTTL(t *testing.T, s *source, n *node) {
	t.Helper()
	gets(t, n, "k", value("k", 1))
	s.write("k")
	s.query = takes(2 * time.Second)
	time.Sleep(11 * time.Second)
}

func TestWaitFreshOfACallOverridesTheOption(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		set  time.Duration
		call []cache.CallOption
		want time.Duration
	}{
		{0, nil, 0},
		{cache.Off, nil, 0},
		{300 * ms, nil, 300 * ms},
		{300 * ms, []cache.CallOption{cache.NoStore()}, 300 * ms},
		{300 * ms, []cache.CallOption{cache.WaitFresh(0)}, 0},
		{300 * ms, []cache.CallOption{cache.WaitFresh(-time.Hour)}, 0},
		{300 * ms, []cache.CallOption{cache.WaitFresh(700 * ms)}, 700 * ms},
		{0, []cache.CallOption{cache.WaitFresh(700 * ms)}, 700 * ms},
		{0, []cache.CallOption{cache.WaitFresh(time.Hour), cache.WaitFresh(700 * ms)}, 700 * ms},
	} {
		t.Run(fmt.Sprint(tc.set, " and ", len(tc.call), " to ", tc.want), func(t *testing.T) {
			o := settings()
			o.WaitFresh = tc.set
			alike(t, o, func(t *testing.T, s *source, n *node) {
				pastTTL(t, s, n)
				calledWith(t, n, "k", value("k", 1), tc.want, tc.call...)
				calledWith(t, n, "k", value("k", 1), 0, cache.WaitFresh(0)) // the copy is still there
			})
		})
	}
}

func TestACallThatWaitsLongEnoughGetsTheNewValue(t *testing.T) {
	alike(t, settings(), func(t *testing.T, s *source, n *node) {
		pastTTL(t, s, n)
		calledWith(t, n, "k", value("k", 2), 2*time.Second, cache.WaitFresh(3*time.Second))
		calledWith(t, n, "k", value("k", 2), 0, cache.WaitFresh(3*time.Second))
		equal(t, "loads", s.queries(), 2)
	})
}

func TestFreshWinsOverWaitFresh(t *testing.T) {
	o := settings()
	o.WaitFresh = 300 * time.Millisecond
	for name, options := range map[string][]cache.CallOption{
		"of the options": {cache.Fresh()},
		"of the call":    {cache.WaitFresh(time.Millisecond), cache.Fresh()},
		"after it":       {cache.Fresh(), cache.WaitFresh(0)},
	} {
		t.Run(name, func(t *testing.T) {
			alike(t, o, func(t *testing.T, s *source, n *node) {
				pastTTL(t, s, n)
				calledWith(t, n, "k", value("k", 2), 2*time.Second, options...)
			})
		})
	}
}

func TestNoStoreOfACallLeavesNoTrace(t *testing.T) {
	inBubble(t, 2, settings(), func(t *testing.T, f *fleet) {
		a, b := f.nodes[0], f.nodes[1]
		calledWith(t, a, "k", value("k", 1), 200*time.Millisecond, cache.NoStore())
		equal(t, "keys in Redis", len(f.keys()), 0)
		calledWith(t, a, "k", value("k", 1), 200*time.Millisecond, cache.NoStore()) // nor is it in memory
		gets(t, b, "k", value("k", 1))
		calledWith(t, a, "k", value("k", 1), 0, cache.NoStore())
		equal(t, "loads", f.queries(), 3)
		time.Sleep(11 * time.Second)
		for _, n := range f.nodes {
			calledWith(t, n, "k", value("k", 1), 0, cache.NoStore()) // stale
		}
		synctest.Wait()
		equal(t, "loads", f.queries(), 3)
		equal(t, "commits", f.sum(func(s cache.Stats) int64 { return s.Commits }), 1)
	})
}

// TestNoStoreHitsOfWhatIsStaleInMemoryBeginNoRefresh: they are answered without a flight.
func TestNoStoreHitsOfWhatIsStaleInMemoryBeginNoRefresh(t *testing.T) {
	alike(t, settings(), func(t *testing.T, s *source, n *node) {
		pastTTL(t, s, n)
		calledWith(t, n, "k", value("k", 1), 0) // begins one, after which the copy is believed again
		time.Sleep(2*time.Second + 10*time.Second + 100*time.Millisecond)
		calledWith(t, n, "k", value("k", 2), 0, cache.NoStore())
		calledWith(t, n, "k", value("k", 2), 0, cache.NoStore())
		synctest.Wait()
		equal(t, "loads", s.queries(), 2)
		equal(t, "refreshes", n.Stats().StaleRefreshes, 1)
	})
}

// TestNoStoreHitsBeginNoEarlyRefresh: at this beta any other hit just before the end does.
func TestNoStoreHitsBeginNoEarlyRefresh(t *testing.T) {
	o := settings()
	o.EarlyRefresh = 100
	alike(t, o, func(t *testing.T, s *source, n *node) {
		gets(t, n, "k", value("k", 1))
		time.Sleep(10*time.Second - time.Millisecond)
		for range 100 {
			calledWith(t, n, "k", value("k", 1), 0, cache.NoStore())
		}
		synctest.Wait()
		equal(t, "early refreshes", n.Stats().EarlyRefreshes, 0)
		for range 100 {
			calledWith(t, n, "k", value("k", 1), 0)
		}
		synctest.Wait()
		equal(t, "early refreshes of others", n.Stats().EarlyRefreshes, 1)
		time.Sleep(time.Second)
	})
}

func TestSkipLocalOfACallSeesOtherNodesWithinLocalTTL(t *testing.T) {
	o := settings()
	o.StreamLength = cache.Off // else it is told
	inBubble(t, 2, o, func(t *testing.T, f *fleet) {
		a, b := f.nodes[0], f.nodes[1]
		gets(t, a, "k", value("k", 1))
		v2 := f.write("k")
		must(t, b.Set(t.Context(), "k", v2))
		gets(t, a, "k", value("k", 1))
		e, err := a.GetEntry(t.Context(), "k", cache.SkipLocal())
		must(t, err)
		equal(t, "value", e.Value, v2)
		equal(t, "source", e.Source, cache.SourceRemote)
		gets(t, a, "k", v2)
		v3 := f.write("k")
		must(t, b.Delete(t.Context(), "k"))
		gets(t, a, "k", v2)
		calledWith(t, a, "k", v3, 200*time.Millisecond, cache.SkipLocal())
		gets(t, a, "k", v3)
	})
}

func TestWithoutRedisSkipLocalOfACallIsServedFromMemory(t *testing.T) {
	inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
		n := local(t, f.source, f.options)
		gets(t, n, "k", value("k", 1))
		calledWith(t, n, "k", value("k", 1), 0, cache.SkipLocal())
		equal(t, "loads", f.queries(), 1)
		equal(t, "hits", n.Stats().Hits, 1)
	})
}

func TestASetWithATTLIsFreshForThatLong(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, time.Minute} {
		t.Run(ttl.String(), func(t *testing.T) {
			alike(t, settings(), func(t *testing.T, s *source, n *node) {
				must(t, n.Set(t.Context(), "k", "set", cache.WithTTL(ttl)))
				state := func(want cache.State) {
					t.Helper()
					e, err := n.GetEntry(t.Context(), "k")
					must(t, err)
					equal(t, "value", e.Value, "set")
					equal(t, "state", e.State, want)
				}
				time.Sleep(ttl - time.Millisecond)
				state(cache.StateFresh)
				time.Sleep(time.Millisecond)
				state(cache.StateStale) // which has it loaded, and that decides anew
				time.Sleep(200*time.Millisecond + 10*time.Second - time.Millisecond)
				gets(t, n, "k", value("k", 1))
				equal(t, "loads while it was fresh", s.queries(), 1)
				time.Sleep(2 * time.Millisecond)
				gets(t, n, "k", value("k", 1))
				synctest.Wait()
				equal(t, "loads after Options.TTL", s.queries(), 2)
				time.Sleep(time.Second)
			})
		})
	}
}

func TestTheTTLOfASetIsThatOfTheEntryInRedis(t *testing.T) {
	inBubble(t, 2, settings(), func(t *testing.T, f *fleet) {
		a, b := f.nodes[0], f.nodes[1]
		must(t, a.Set(t.Context(), "k", "set", cache.WithTTL(2*time.Second), cache.RowVersion(7)))
		equal(t, "lifetime", f.lifetimes()[a.RedisKey("k")], 2*time.Second+30*time.Second)
		must(t, a.Set(t.Context(), "k", "older", cache.RowVersion(6)))
		for _, n := range f.nodes {
			gets(t, n, "k", "set")
		}
		time.Sleep(2 * time.Second)
		e, err := b.GetEntry(t.Context(), "k")
		must(t, err)
		equal(t, "state on another node", e.State, cache.StateStale)
		time.Sleep(time.Second)
		equal(t, "lifetime after a load", f.lifetimes()[a.RedisKey("k")] > 35*time.Second, true)
	})
}

func TestTheTTLOfASetIsJittered(t *testing.T) {
	o := settings()
	o.TTLJitter = 0.5
	inBubble(t, 1, o, func(t *testing.T, f *fleet) {
		seen := map[time.Duration]bool{}
		for i := range 20 {
			must(t, f.nodes[0].Set(t.Context(), fmt.Sprint(i), "set", cache.WithTTL(100*time.Second)))
		}
		for _, left := range f.lifetimes() {
			if left < 50*time.Second+30*time.Second || left > 130*time.Second {
				t.Errorf("lives for %v", left)
			}
			seen[left] = true
		}
		equal(t, "different lifetimes", len(seen) > 10, true)
	})
}

func TestASetWithATTLOutOfRangeIsRefusedAndNamesTheKey(t *testing.T) {
	const year = 365 * 24 * time.Hour
	alike(t, settings(), func(t *testing.T, _ *source, n *node) {
		for _, ttl := range []time.Duration{-1, -time.Second, year + 1, 1<<63 - 1, -1 << 63, 0} {
			err := n.Set(t.Context(), "some key", "set", cache.WithTTL(ttl))
			if err == nil || !strings.Contains(err.Error(), `"some key"`) || !strings.Contains(err.Error(), fmt.Sprint(ttl)) {
				t.Errorf("%v: error %v, want one that names the key and the TTL", ttl, err)
			}
			if e, ok, _ := n.Peek(t.Context(), "some key"); ok {
				t.Errorf("%v: %q is stored all the same", ttl, e.Value)
			}
		}
		for _, ttl := range []time.Duration{1, year} {
			must(t, n.Set(t.Context(), "k", "set", cache.WithTTL(ttl)))
		}
	})
}

// nesting is a source whose loads of outer ask ask for inner, after 50 ms.
func nesting(s *source, ask func(ctx context.Context) error) {
	s.query = func(ctx context.Context, key string, n int) error {
		if err := pass(ctx, 50*time.Millisecond); err != nil || key != "outer" {
			return err
		}
		return ask(ctx)
	}
}

func got1(v string, err error) error {
	if err == nil && v != value("inner", 1) {
		return fmt.Errorf("got %q", v)
	}
	return err
}

func TestALoadInsideALoadNeedsNoSlot(t *testing.T) {
	o := settings()
	o.MaxConcurrentLoads = 1
	for situation, which := range map[string]func(t *testing.T, s *source, n *node) *cache.Cache[string, string]{
		"of the same cache": func(_ *testing.T, _ *source, n *node) *cache.Cache[string, string] { return n.Cache },
		"of another cache": func(t *testing.T, s *source, _ *node) *cache.Cache[string, string] {
			return opened(t, "another", s.load, o)
		},
	} {
		t.Run(situation, func(t *testing.T) {
			for name, ask := range map[string]func(context.Context, *cache.Cache[string, string]) error{
				"by Get":     func(ctx context.Context, c *cache.Cache[string, string]) error { return got1(c.Get(ctx, "inner")) },
				"by Refresh": func(ctx context.Context, c *cache.Cache[string, string]) error { return got1(c.Refresh(ctx, "inner")) },
				"by Get with NoStore": func(ctx context.Context, c *cache.Cache[string, string]) error {
					return got1(c.Get(ctx, "inner", cache.NoStore()))
				},
			} {
				t.Run(name, func(t *testing.T) {
					alike(t, o, func(t *testing.T, s *source, n *node) {
						c := which(t, s, n)
						nesting(s, func(ctx context.Context) error { return ask(ctx, c) })
						calledWith(t, n, "outer", value("outer", 1), 100*time.Millisecond)
					})
				})
			}
		})
	}
}

// TestALoadInsideALoadDoesNotWaitForAnotherThatWaitsForItsSlot: somebody else has asked for the inner
// key before and is in the queue, behind the outer load.
func TestALoadInsideALoadDoesNotWaitForAnotherThatWaitsForItsSlot(t *testing.T) {
	o := settings()
	o.MaxConcurrentLoads = 1
	for name, ask := range map[string]func(context.Context, *cache.Cache[string, string]) (string, error){
		"by Get": func(ctx context.Context, c *cache.Cache[string, string]) (string, error) { return c.Get(ctx, "inner") },
		"by Refresh": func(ctx context.Context, c *cache.Cache[string, string]) (string, error) {
			return c.Refresh(ctx, "inner")
		},
	} {
		t.Run(name, func(t *testing.T) {
			alike(t, o, func(t *testing.T, s *source, n *node) {
				nesting(s, func(ctx context.Context) error { return got1(ask(ctx, n.Cache)) })
				outer := start(t.Context(), 1, "outer", n)
				time.Sleep(10 * time.Millisecond)
				queued := make(chan error, 1)
				go func() { queued <- got1(ask(t.Context(), n.Cache)) }()
				allGet(t, outer.wait(), value("outer", 1), 100*time.Millisecond)
				must(t, <-queued)
			})
		})
	}
}

// TestALoadInsideALoadDoesNotGetAroundStuckLoads: it bypasses the bulkhead, but not the bound on
// loads that ignore their context.
func TestALoadInsideALoadDoesNotGetAroundStuckLoads(t *testing.T) {
	o := settings()
	o.MaxConcurrentLoads, o.LoadTimeout, o.ErrorBackoff = 4, time.Second, 100*time.Millisecond
	alike(t, o, func(t *testing.T, s *source, n *node) {
		t.Cleanup(func() { <-time.After(time.Hour) }) // what is stuck ends before the bubble does
		nested := func(ctx context.Context, key string, i int) error {
			if key == "inner" {
				return pass(context.WithoutCancel(ctx), time.Hour)
			}
			_, err := n.Get(ctx, "inner")
			return err
		}
		s.query = nested
		_, err := n.Get(t.Context(), "inner")
		equal(t, "the first is stuck", errors.Is(err, cache.ErrLoadTimeout), true)
		for i := range 3 {
			time.Sleep(time.Second)
			_, err = n.Get(t.Context(), fmt.Sprint("outer ", i))
			if !errors.Is(err, cache.ErrOverloaded) {
				t.Errorf("got %v, want ErrOverloaded", err)
			}
		}
		equal(t, "stuck", n.Stats().AbandonedNow, 1)
	})
}

func TestStuckLoadsAreCountedAndTheirKeyFailsFastOrIsServedStale(t *testing.T) {
	o := settings()
	o.MaxConcurrentLoads, o.LoadTimeout, o.ErrorBackoff = 1, time.Second, 100*time.Millisecond
	alike(t, o, func(t *testing.T, s *source, n *node) {
		t.Cleanup(func() { <-time.After(time.Minute) }) // what is stuck ends before the bubble does
		gets(t, n, "stale", value("stale", 1))
		time.Sleep(11 * time.Second)
		s.query = func(ctx context.Context, key string, i int) error {
			if key == "stale" && i == 2 || key == "cold" && i == 1 {
				return pass(context.WithoutCancel(ctx), 20*time.Second)
			}
			return nil
		}
		calledWith(t, n, "stale", value("stale", 1), 0)
		time.Sleep(2 * time.Second)
		equal(t, "stuck", n.Stats().AbandonedNow, 1)
		calledWith(t, n, "stale", value("stale", 1), 0)
		calledWith(t, n, "stale", value("stale", 1), 0, cache.WaitFresh(time.Second))
		_, err := n.Get(t.Context(), "cold")
		equal(t, "the second is not of its key and gets stuck", errors.Is(err, cache.ErrLoadTimeout), true)
		time.Sleep(time.Second)
		began := time.Now()
		_, err = n.Get(t.Context(), "cold")
		if !errors.Is(err, cache.ErrOverloaded) || time.Since(began) != 0 {
			t.Errorf("got %v after %v, want ErrOverloaded at once", err, time.Since(began))
		}
		equal(t, "loads", s.queries(), 3)
		time.Sleep(20 * time.Second)
		equal(t, "stuck in the end", n.Stats().AbandonedNow, 0)
		calledWith(t, n, "cold", value("cold", 1), 0)
		calledWith(t, n, "stale", value("stale", 1), 0, cache.Fresh())
	})
}

func TestAFullQueueIsOverloadAtOnce(t *testing.T) {
	o := settings()
	o.MaxConcurrentLoads = 1
	alike(t, o, func(t *testing.T, s *source, n *node) {
		var waiting []*calls
		for i := range 11 {
			waiting = append(waiting, start(t.Context(), 1, fmt.Sprint(i), n))
			synctest.Wait()
		}
		began := time.Now()
		_, err := n.Get(t.Context(), "k")
		if !errors.Is(err, cache.ErrOverloaded) || time.Since(began) != 0 {
			t.Errorf("got %v after %v, want ErrOverloaded at once", err, time.Since(began))
		}
		for i, c := range waiting {
			allGet(t, c.wait(), value(fmt.Sprint(i), 1), time.Duration(i+1)*200*time.Millisecond)
		}
		gets(t, n, "k", value("k", 1))
	})
}

// TestACallerInTheQueueLeavesWhenItsContextEnds.
func TestACallerInTheQueueLeavesWhenItsContextEnds(t *testing.T) {
	o := settings()
	o.MaxConcurrentLoads = 1
	alike(t, o, func(t *testing.T, s *source, n *node) {
		s.query = takes(2 * time.Second)
		slow := start(t.Context(), 1, "slow", n)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		g := start(ctx, 1, "k", n).wait()[0]
		if !errors.Is(g.err, context.DeadlineExceeded) || g.took != 300*time.Millisecond {
			t.Errorf("got %v after %v", g.err, g.took)
		}
		allGet(t, slow.wait(), value("slow", 1), 2*time.Second)
		time.Sleep(2 * time.Second)
	})
}
