package cache_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

func TestB01_AnOldFlightsEndLeavesTheNewerFlight(t *testing.T) {
	inBubble(t, 1, settings(), func(t *testing.T, f *fleet) {
		f.query = takes(300 * time.Millisecond)
		n := f.nodes[0]
		first := start(t.Context(), 1, "k", n)
		time.Sleep(50 * time.Millisecond)
		v2 := f.write("k")
		must(t, n.Delete(t.Context(), "k"))
		second := start(t.Context(), 1, "k", n)
		time.Sleep(260 * time.Millisecond)
		late := start(t.Context(), 50, "k", n)
		allGet(t, first.wait(), value("k", 1), 300*time.Millisecond)
		allGet(t, second.wait(), v2, 300*time.Millisecond)
		allGet(t, late.wait(), v2, 40*time.Millisecond)
		equal(t, "loads", f.queries(), 2)
		equal(t, "loads at once", f.peak(), 2) // the revoked one and its successor
	})
}

// local is a cache without Redis.
func local(t *testing.T, f *source, o cache.Options) *node {
	t.Helper()
	c, err := cache.New("local", loader.Func(f.load), o)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return &node{Cache: c}
}

// tiers are a node on a real Redis and one without.
func tiers(t *testing.T, o cache.Options, body func(*testing.T, *source, *node)) {
	t.Run("with Redis", func(t *testing.T) {
		f := onServer(t, redistest.Shared(t), 1, o)
		body(t, f.source, f.nodes[0])
	})
	t.Run("without Redis", func(t *testing.T) {
		s := newSource()
		body(t, s, local(t, s, o))
	})
}

func TestB02_ALateArriverFindsWhatTheFlightBrought(t *testing.T) {
	o := settings()
	o.TTL, o.RedisTimeout = time.Hour, 5*time.Second // a slow machine is no outage
	tiers(t, o, func(t *testing.T, s *source, n *node) {
		s.query = func(ctx context.Context, _ string, _ int) error {
			return pass(ctx, time.Duration(rand.Int64N(int64(time.Millisecond))))
		}
		rounds := soak(100, 100_000)
		for i := range rounds {
			key := strconv.Itoa(i)
			for _, g := range start(t.Context(), 64, key, n).wait() {
				if g.err != nil || g.value != value(key, 1) {
					t.Fatalf("got %q, %v", g.value, g.err)
				}
			}
		}
		equal(t, "loads", s.queries(), rounds)
		equal(t, "loads at once", s.peak(), 1)
	})
}

func TestB03_AGetAfterAGetFindsTheValue(t *testing.T) {
	o := settings()
	o.RedisTimeout = 5 * time.Second
	tiers(t, o, func(t *testing.T, s *source, n *node) {
		s.query = takes(0)
		keys := soak(200, 10_000)
		for i := range keys {
			key := strconv.Itoa(i)
			gets(t, n, key, value(key, 1))
			gets(t, n, key, value(key, 1))
		}
		equal(t, "loads", s.queries(), keys)
		equal(t, "loads at once", s.peak(), 1)
	})
}

// A small local tier is full from the first moments on and refuses many of the new keys; what
// it refuses is met by Redis, or by the map of recent loads.
func TestB03_ABurstOfNewKeysReadAgainLoadsEachOnce(t *testing.T) {
	o := settings()
	o.RedisTimeout = 5 * time.Second
	o.LocalMaxBytes = 1 << 20
	tiers(t, o, func(t *testing.T, s *source, n *node) {
		s.query = takes(0)
		keys := soak(1_500, 100_000)
		var running sync.WaitGroup
		for worker := range 64 {
			running.Go(func() {
				for i := worker; i < keys; i += 64 {
					key := strconv.Itoa(i)
					gets(t, n, key, value(key, 1))
					gets(t, n, key, value(key, 1))
				}
			})
		}
		running.Wait()
		again := s.queries() - keys
		if n.client != nil {
			equal(t, "loads of a key that Redis had", again, 0)
		} else if again > keys/100 {
			t.Errorf("%d of %d keys were loaded again", again, keys)
		}
		equal(t, "loads at once", s.peak(), 1)
	})
}

// Our failure is remembered on all nodes, so callers elsewhere are told of it instead of
// loading in turn.
func TestB04_JoinersOfAFailedLoadGetItsError(t *testing.T) {
	inBubble(t, 2, settings(), func(t *testing.T, f *fleet) {
		lost := errors.New("no route to the database")
		f.query = func(ctx context.Context, _ string, _ int) error {
			_ = pass(ctx, 100*time.Millisecond)
			return lost
		}
		here := start(t.Context(), 101, "k", f.nodes[0])
		synctest.Wait()
		there := start(t.Context(), 100, "k", f.nodes[1])
		for _, g := range here.wait() {
			if !errors.Is(g.err, lost) || g.value != "" || g.took != 100*time.Millisecond {
				t.Fatalf("a joiner got %q, %v after %v", g.value, g.err, g.took)
			}
		}
		allAreTold(t, there.wait(), lost.Error(), 100*time.Millisecond)
		equal(t, "loads", f.queries(), 1)
	})
}

// asking is a loader whose load of each key asks the cache for another one.
type asking struct {
	next  map[string]string
	users *cache.Cache[string, string]
	heeds bool // hands on the context it was given
}

func (a *asking) Load(ctx context.Context, key string) (string, error) {
	next := a.next[key]
	if next == "" {
		return value(key, 1), nil
	}
	if !a.heeds {
		ctx = context.Background()
	}
	v, err := a.users.Get(ctx, next)
	return key + "<" + v, err
}

func TestB07_ALoaderThatAsksForItsOwnKeyIsRefused(t *testing.T) {
	for _, tc := range []struct {
		name  string
		next  map[string]string
		redis bool
	}{
		{"itself, with Redis", map[string]string{"k": "k"}, true},
		{"itself, without", map[string]string{"k": "k"}, false},
		{"through another key, with Redis", map[string]string{"k": "m", "m": "k"}, true},
		{"through another key, without", map[string]string{"k": "m", "m": "k"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
				o, a := settings(), &asking{next: tc.next, heeds: true}
				if tc.redis {
					o.Redis, _ = f.dial()
				}
				users, err := cache.New("user", loader.Loader[string, string](a), o)
				must(t, err)
				defer users.Close()
				a.users = users
				began := time.Now()
				_, err = users.Get(t.Context(), "k")
				if !errors.Is(err, cache.ErrRecursive) {
					t.Errorf("got %v, want ErrRecursive", err)
				}
				within(t, "the refusal", time.Since(began), 10*time.Millisecond)

				a.next = nil
				time.Sleep(500 * time.Millisecond) // ErrorBackoff: it was a failed load
				for _, key := range []string{"k", "m"} {
					v, err := users.Get(t.Context(), key)
					if v != value(key, 1) || err != nil {
						t.Errorf("afterwards got %q, %v", v, err)
					}
				}
			})
		})
	}
}

func TestB07_ALoaderThatHidesItsContextEndsAtLoadTimeout(t *testing.T) {
	inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
		o, a := settings(), &asking{next: map[string]string{"k": "m", "m": "k"}}
		o.Redis, _ = f.dial()
		users, err := cache.New("user", loader.Loader[string, string](a), o)
		must(t, err)
		defer users.Close()
		a.users = users
		began := time.Now()
		if _, err = users.Get(t.Context(), "k"); !errors.Is(err, cache.ErrLoadTimeout) {
			t.Errorf("got %v, want ErrLoadTimeout", err)
		}
		equal(t, "until the refusal", time.Since(began), 5*time.Second)
	})
}

func TestB07_ALoaderMayAskForOtherKeys(t *testing.T) {
	inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
		o, a := settings(), &asking{next: map[string]string{"k": "m", "m": "n"}, heeds: true}
		o.Redis, _ = f.dial()
		o.MaxConcurrentLoads = 1 // a load inside a load needs no slot of its own
		users, err := cache.New("user", loader.Loader[string, string](a), o)
		must(t, err)
		defer users.Close()
		a.users = users
		v, err := users.Get(t.Context(), "k")
		if v != "k<m<n@1" || err != nil {
			t.Errorf("got %q, %v", v, err)
		}
	})
}
