package cache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

func TestB58_ADeleteDuringALoadOnTheSameNodeKeepsTheOldRowOut(t *testing.T) {
	inBubble(t, 1, settings(), func(t *testing.T, f *fleet) {
		f.query = takes(300 * time.Millisecond)
		n := f.nodes[0]
		before := start(t.Context(), 10, "k", n)
		time.Sleep(100 * time.Millisecond)
		v2 := f.write("k")
		must(t, n.Delete(t.Context(), "k"))
		f.never("k", value("k", 1))
		time.Sleep(10 * time.Millisecond)
		soon := start(t.Context(), 10, "k", n)
		time.Sleep(290 * time.Millisecond)
		later := start(t.Context(), 10, "k", n)
		allGet(t, before.wait(), value("k", 1), 300*time.Millisecond)
		allGet(t, soon.wait(), v2, 300*time.Millisecond)
		allGet(t, later.wait(), v2, 10*time.Millisecond)
		f.stores("k", v2)
		e, err := n.GetEntry(t.Context(), "k")
		if e.Value != v2 || e.Source != cache.SourceLocal || err != nil {
			t.Errorf("afterwards got %+v, %v", e, err)
		}
		equal(t, "loads", f.queries(), 2)
	})
}

func TestB59_ADeleteOnOneNodeRevokesTheLoadOnAnother(t *testing.T) {
	const parts = 4 // to keep all cores busy
	for part := range parts {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			inBubble(t, 3, settings(), func(t *testing.T, f *fleet) {
				f.query = takes(300 * time.Millisecond)
				revoked := int64(0)
				for round := range 1000 / parts {
					if f.deleteDuringLoad(t, fmt.Sprint("k", round), round%4 == 0) {
						revoked++
					}
					if t.Failed() {
						t.Fatalf("in round %d", round)
					}
				}
				equal(t, "refused commits", f.sum(func(s cache.Stats) int64 { return s.Refused }), revoked)
			})
		})
	}
}

// deleteDuringLoad is one round of B59, in a bubble: node A loads for 300 ms, and at some moment,
// or between the end of the load and its commit, B deletes. It tells whether that came before
// the commit. After LocalTTL a copy that the delete did not reach is no longer believed.
func (f *fleet) deleteDuringLoad(t *testing.T, key string, between bool) (revoked bool) {
	a, b := f.nodes[0], f.nodes[1]
	v1, began := value(key, 1), time.Now()
	offset := time.Duration(rand.Int64N(int64(350 * time.Millisecond)))
	held := a.faults.Hold(isCommit).Times(1)
	if between {
		offset = 300*time.Millisecond + offset/4
	} else {
		held.Clear()
	}
	first := start(t.Context(), 1, key, a)
	time.Sleep(offset)
	v2 := f.write(key)
	must(t, b.Delete(t.Context(), key))
	f.never(key, v1)
	held.Release(t.Context())

	revoked = between || offset < 300*time.Millisecond
	time.Sleep(400*time.Millisecond - offset)
	for i, n := range f.nodes {
		e, err := n.GetEntry(t.Context(), key)
		if err != nil || e.Value != v2 && (i > 0 || revoked) {
			t.Errorf("delete after %v: node %d got %+v, %v", offset, i, e, err)
		}
	}
	if g := first.wait()[0]; g.err != nil || g.value != v1 && g.value != v2 {
		t.Errorf("delete after %v: the first caller got %q, %v", offset, g.value, g.err)
	}
	time.Sleep(2*time.Second - time.Since(began))
	for _, n := range f.nodes {
		gets(t, n, key, v2)
	}
	f.stores(key, v2)
	return revoked
}

func TestB60_ASetDuringALoadOutlivesTheOlderLoad(t *testing.T) {
	for setter, who := range []string{"on the loading node", "on another node"} {
		t.Run(who, func(t *testing.T) {
			inBubble(t, 2, settings(), func(t *testing.T, f *fleet) {
				f.query = takes(300 * time.Millisecond)
				loading := start(t.Context(), 10, "k", f.nodes[0])
				time.Sleep(100 * time.Millisecond)
				v2 := f.write("k")
				must(t, f.nodes[setter].Set(t.Context(), "k", v2))
				f.never("k", value("k", 1))
				f.stores("k", v2)
				time.Sleep(250 * time.Millisecond)
				for _, n := range f.nodes {
					gets(t, n, "k", v2)
					e, err := n.GetEntry(t.Context(), "k")
					if e.Value != v2 || e.Source != cache.SourceLocal || err != nil {
						t.Errorf("got %+v, %v, want %s from memory", e, err, v2)
					}
				}
				f.stores("k", v2)
				for _, g := range loading.wait() {
					if g.err != nil || g.value != v2 && g.value != value("k", 1) {
						t.Errorf("a waiter got %q, %v", g.value, g.err)
					}
				}
				equal(t, "loads", f.queries(), 1)
			})
		})
	}
}

// rows are what B64 reads and deletes: each has a version, and the version that every Get begun
// from now on must at least show.
type rows [4]struct{ version, floor atomic.Int64 }

func (r *rows) load(key int) int64 { return r[key].version.Load() }

// remove writes a new version and deletes the old from the cache.
func (r *rows) remove(t *testing.T, c *cache.Cache[int, int64], key int) {
	v := r[key].version.Add(1)
	must(t, c.Delete(t.Context(), key))
	for {
		old := r[key].floor.Load()
		if old >= v || r[key].floor.CompareAndSwap(old, v) {
			return
		}
	}
}

// The other node, where there is Redis, makes sure that what this one keeps comes from there as
// well as from loads.
func TestB64_NothingFromBeforeADeleteIsSeenAfterIt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		redis  bool
		rounds int
	}{
		{"with Redis", true, soak(4_000, 200_000)},
		{"without", false, soak(40_000, 1_000_000)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var table rows
			l := loader.Func(func(_ context.Context, key int) (int64, error) { return table.load(key), nil })
			o := settings()
			o.LocalTTL, o.TTL, o.RedisTimeout = time.Hour, time.Hour, 10*time.Second
			caches := make([]*cache.Cache[int, int64], 2)
			s := &redistest.Server{}
			if tc.redis {
				s = redistest.Shared(t)
			}
			for i := range caches {
				if tc.redis {
					o.Redis = s.Client(t)
				}
				var err error
				caches[i], err = cache.New("b64", l, o)
				must(t, err)
				defer caches[i].Close()
			}
			var running sync.WaitGroup
			for worker := range 8 {
				running.Go(func() {
					for range tc.rounds / 8 {
						key := rand.IntN(len(table))
						switch {
						case worker < 2:
							table.remove(t, caches[0], key)
						case worker == 2:
							_, _ = caches[1].Get(t.Context(), key)
						default:
							floor := table[key].floor.Load()
							v, err := caches[0].Get(t.Context(), key)
							if err != nil || v < floor {
								t.Errorf("got version %d, %v after a delete of %d had returned", v, err, floor)
								return
							}
						}
					}
				})
			}
			running.Wait()
		})
	}
}
