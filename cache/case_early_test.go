package cache_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
)

// Refresh-ahead is the early refresh here: at its default a key that is read all the time is loaded
// anew about once in each TTL. The lease may live for two of these, so a lease that did not end
// with its load would cost every second refresh.
func TestB33_AKeyIsRefreshedAheadOnceAPeriodByOneNodeOfTheFleet(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprint(nodes, " nodes"), func(t *testing.T) {
			o := settings()
			o.TTL, o.EarlyRefresh = time.Second, 0
			inBubble(t, nodes, o, func(t *testing.T, f *fleet) {
				f.query = takes(20 * time.Millisecond)
				for _, n := range f.nodes {
					gets(t, n, "k", value("k", 1))
				}
				for began := time.Now(); time.Since(began) < 20*time.Second; time.Sleep(time.Millisecond) {
					for _, n := range f.nodes {
						asked := time.Now()
						gets(t, n, "k", value("k", 1))
						within(t, "a call", time.Since(asked), 0)
					}
				}
				synctest.Wait()
				refreshes := f.sum(func(s cache.Stats) int64 { return s.EarlyRefreshes })
				if refreshes < 18 || refreshes > 22 {
					t.Errorf("%d early refreshes in 20 s, want about 20", refreshes)
				}
				equal(t, "refreshes of a stale value", f.sum(func(s cache.Stats) int64 { return s.StaleRefreshes }), 0)
				equal(t, "loads", int64(f.queries()), 1+refreshes)
				equal(t, "loads at once", f.peak(), 1)
			})
		})
	}
}

// The beta forces the refresh. There is one slot for it, and nothing stale is served: who comes
// after the expiry finds a value, or waits. The case's full expiry comes twice: of the old value,
// which the refresh has replaced by then, and of the new one.
func TestB47_AnEarlyRefreshOutlivesTheCallerThatBeganIt(t *testing.T) {
	o := settings()
	o.EarlyRefresh, o.StaleWhileRevalidate, o.MaxConcurrentLoads = 100, cache.Off, 4
	alike(t, o, func(t *testing.T, s *source, n *node) {
		twenty := func(version int, after time.Duration) {
			t.Helper()
			allGet(t, start(t.Context(), 20, "k", n).wait(), value("k", version), after)
		}
		early := func(want int64) {
			t.Helper()
			equal(t, "early refreshes", n.Stats().EarlyRefreshes, want)
		}
		gets(t, n, "k", value("k", 1))
		s.write("k")
		time.Sleep(9900 * time.Millisecond)
		early(0)
		abandoned(t, s, n)
		early(1)
		time.Sleep(time.Second) // the end of the old one
		twenty(2, 0)
		equal(t, "cancelled loads", s.cancelled, 0)
		equal(t, "loads", s.queries(), 2)

		s.write("k")
		time.Sleep(10 * time.Second) // the end of the new one
		twenty(3, 200*time.Millisecond)
		equal(t, "loads", s.queries(), 3)

		time.Sleep(9900 * time.Millisecond)
		abandoned(t, s, n) // the slot was given back, so there is one for this
		early(2)
		time.Sleep(time.Second)
	})
}

// abandoned is a hit whose caller leaves in the middle of the refresh that it begins. It is for use
// in a bubble.
func abandoned(t *testing.T, s *source, n *node) {
	t.Helper()
	before := s.queries()
	ctx, cancel := context.WithCancel(t.Context())
	if e, err := n.GetEntry(ctx, "k"); e.State != cache.StateFresh || err != nil {
		t.Errorf("got %+v, %v, want a fresh value", e, err)
	}
	time.Sleep(100 * time.Millisecond)
	equal(t, "loads begun", s.queries()-before, 1)
	cancel()
}

// arrivals are when loads began.
type arrivals struct {
	mu sync.Mutex
	at []time.Duration
}

func (a *arrivals) query(began time.Time) func(context.Context, string, int) error {
	return func(ctx context.Context, _ string, _ int) error {
		a.mu.Lock()
		a.at = append(a.at, time.Since(began))
		a.mu.Unlock()
		return pass(ctx, 20*time.Millisecond)
	}
}

// between is how many loads began then, and how many of them in the busiest second.
func (a *arrivals) between(from, to time.Duration) (all, peak int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.at)
	first, _ := slices.BinarySearch(a.at, from)
	last, _ := slices.BinarySearch(a.at, to)
	list := a.at[first:last]
	for i, at := range list {
		end, _ := slices.BinarySearch(list, at+time.Second)
		peak = max(peak, end-i)
	}
	return len(list), peak
}

// warm reads so many keys for the first time within a second, in a bubble.
func warm(t *testing.T, n *node, keys int) {
	t.Helper()
	const steps = 100
	var running sync.WaitGroup
	for i := range keys {
		running.Go(func() { gets(t, n, strconv.Itoa(i), value(strconv.Itoa(i), 1)) })
		if i%(keys/steps) == 0 {
			time.Sleep(time.Second / steps)
		}
	}
	running.Wait()
}

// At the case's 2,000 reads a second each key is read once in five seconds, and that spreads the
// loads by itself; what the jitter does is seen in the next test. The ordinary run has a seventh of the
// case's keys and reads without Redis, and a hundredth with it; under LEVEE_SOAK=1 it has them all.
// Without jitter the case asks for nothing but the local tier's size: that test is below.
func TestB97_KeysWarmedTogetherHaveAPeakOfThreeTimesTheMeanAtMost(t *testing.T) {
	for shared, keys := range map[bool]int{false: soak(1_500, 10_000), true: soak(100, 10_000)} {
		t.Run(fmt.Sprint("with Redis: ", shared), func(t *testing.T) {
			o := settings()
			o.TTLJitter, o.EarlyRefresh, o.LocalMaxBytes = 0.10, 0, 16<<20
			inBubble(t, 0, o, func(t *testing.T, f *fleet) {
				if shared {
					f.grow(1)
					f.readTogether(t, f.nodes[0], keys)
				} else {
					f.readTogether(t, local(t, f.source, o), keys)
				}
			})
		})
	}
}

// readTogether is one run of B97, in a bubble.
func (f *fleet) readTogether(t *testing.T, n *node, keys int) {
	loads, began := &arrivals{}, time.Now()
	f.query = loads.query(began)
	warm(t, n, keys)
	equal(t, "loads in the first round", f.queries(), keys)
	for i := 0; time.Since(began) < 41*time.Second; i++ {
		key := strconv.Itoa(i * 7919 % keys) // in no order of theirs
		gets(t, n, key, value(key, 1))
		time.Sleep(5 * time.Second / time.Duration(keys))
	}
	from := 2 * time.Second
	all, peak := loads.between(from, time.Since(began))
	loads.mu.Lock()
	first, _ := slices.BinarySearch(loads.at, from)
	mean := float64(all) / (41*time.Second - loads.at[first]).Seconds()
	loads.mu.Unlock()
	t.Logf("%d loads from the second round on, %.0f a second, %d in the busiest", all, mean, peak)
	if float64(peak) > 3*mean {
		t.Errorf("the busiest second has %d loads, the mean is %.0f", peak, mean)
	}
	equal(t, "every key was loaded again", all >= keys, true)
}

// Keys that are read ten times a second are loaded as soon as they have expired, so nothing but the
// jitter takes them apart: a little further in each round. In a bubble; fewer keys than in the
// case, and no early refresh.
func TestB97_TheJitterTakesKeysApartThatAreReadAllTheTime(t *testing.T) {
	const keys = 300
	for jitter, share := range map[float64]struct{ least, most float64 }{
		0.10:      {0.40, 0.72}, // of the sum of four jitters and the warm-up
		cache.Off: {0.95, 1},
	} {
		t.Run(fmt.Sprint("jitter ", jitter), func(t *testing.T) {
			o := settings()
			o.TTLJitter = jitter
			synctest.Test(t, func(t *testing.T) {
				s := newSource()
				n := local(t, s, o)
				loads, began := &arrivals{}, time.Now()
				s.query = loads.query(began)
				warm(t, n, keys)
				for i := 0; time.Since(began) < 42*time.Second; i++ {
					gets(t, n, strconv.Itoa(i%keys), value(strconv.Itoa(i%keys), 1))
					if i%(keys/10) == 0 {
						time.Sleep(10 * time.Millisecond)
					}
				}
				fifth, peak := loads.between(35500*time.Millisecond, 43*time.Second)
				equal(t, "loads in the fifth round", fifth, keys)
				if got := float64(peak) / keys; got < share.least || got > share.most {
					t.Errorf("%.2f of the keys were loaded in one second, want %.2f to %.2f", got, share.least, share.most)
				}
			})
		})
	}
}

// heap is what the heap holds after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools and finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The other half of the case: the local tier stays within its size, whether all have one expiry or
// not. The values are twice what it may hold, and it is filled three times, with everything
// in it stale. The keys are fewer than the case's, so is the size.
func TestB97_TheLocalTierStaysWithinItsSizeWhateverExpiresTogether(t *testing.T) {
	const keys, size, limit = 2000, 1 << 10, 1 << 20
	for _, jitter := range []float64{0.10, cache.Off} {
		t.Run(fmt.Sprint("jitter ", jitter), func(t *testing.T) {
			o := settings()
			o.TTLJitter, o.EarlyRefresh, o.LocalMaxBytes = jitter, 0, limit
			synctest.Test(t, func(t *testing.T) {
				c, err := cache.New("b97", loader.Func(func(_ context.Context, key int) (string, error) {
					return strings.Repeat(strconv.Itoa(key%10), size), nil
				}), o)
				must(t, err)
				defer c.Close()
				before := heap()
				for range 3 {
					for key := range keys {
						_, err := c.Get(t.Context(), key)
						must(t, err)
					}
					time.Sleep(11 * time.Second)
					if grown := heap() - before; grown > limit*3/2 {
						t.Errorf("the heap has grown by %d bytes, want 1.5 times %d at most", grown, limit)
					}
				}
				equal(t, "loads of what it does not hold", c.Stats().Loads > 2*keys, true)
			})
		})
	}
}
