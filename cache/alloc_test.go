package cache

import (
	"context"
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// noAllocs fails if f allocates.
func noAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(2000, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}

// countable skips where allocations cannot be counted.
func countable(t *testing.T) {
	t.Helper()
	if raceEnabled {
		t.Skip("the race detector allocates: run without -race")
	}
}

type account struct {
	Name    string
	Balance int64
}

// hits has a cache answer for key in all ways from memory, without an allocation.
func hits[K comparable](t *testing.T, c *Cache[K, account], key K, want State) {
	t.Helper()
	ctx := t.Context()
	e, err := c.GetEntry(ctx, key)
	must(t, err)
	equal(t, "state", e.State, want)
	equal(t, "source", e.Source, SourceLocal)
	noAllocs(t, "Get", func() { _, _ = c.Get(ctx, key) })
	noAllocs(t, "GetEntry", func() { _, _ = c.GetEntry(ctx, key) })
	if want == StateFresh {
		noAllocs(t, "Get with an option", func() { _, _ = c.Get(ctx, key, Fresh()) })
		noAllocs(t, "GetEntry with options", func() { _, _ = c.GetEntry(ctx, key, Fresh(), Fresh()) })
	} else {
		noAllocs(t, "Get with an option", func() { _, _ = c.Get(ctx, key, CallOption{}) })
	}
}

// freshHits tries one key, with and without Redis.
func freshHits[K comparable](t *testing.T, key K) {
	t.Helper()
	for situation, o := range map[string]Options{
		"without Redis": {TTL: time.Hour, LocalTTL: time.Hour},
		"with Redis":    {TTL: time.Hour, LocalTTL: time.Hour, Redis: redistest.Shared(t).Client(t)},
	} {
		t.Run(situation, func(t *testing.T) {
			c := newCache(t, "alloc", always[K](account{"a", 1}), o)
			for range 2 { // the node may have begun to hear between asking and keeping: then it is verified once
				_, err := c.Get(t.Context(), key)
				must(t, err)
				c.local.tier.Wait()
			}
			hits(t, c, key, StateFresh)
		})
	}
}

// staleHits tries one key whose refresh is under way all the time.
func staleHits[K comparable](t *testing.T, key K) {
	t.Helper()
	refreshing, loads := make(chan struct{}), 0
	l := loader.Func(func(ctx context.Context, _ K) (account, error) {
		if loads++; loads > 1 { // one at a time: the key is the only one
			close(refreshing)
			<-ctx.Done()
			return account{}, ctx.Err()
		}
		return account{"a", 1}, nil
	})
	c := newCache(t, "alloc", l, Options{TTL: time.Millisecond, StaleWhileRevalidate: time.Hour, LoadTimeout: time.Hour})
	_, err := c.Get(t.Context(), key)
	must(t, err)
	c.local.tier.Wait()
	redistest.Eventually(t, 10*time.Second, func() bool {
		e, err := c.GetEntry(t.Context(), key)
		return err == nil && e.State == StateStale
	}, "the copy is stale")
	<-refreshing
	hits(t, c, key, StateStale)
}

type (
	accountName string
	accountID   int64
)

func TestAllocLocalHit(t *testing.T) {
	countable(t)
	t.Run("string key", func(t *testing.T) { freshHits(t, "some-account-name") })
	t.Run("named string key", func(t *testing.T) { freshHits(t, accountName("some-account-name")) })
	t.Run("int key", func(t *testing.T) { freshHits(t, 1234567) })
	t.Run("int64 key", func(t *testing.T) { freshHits(t, int64(-1234567890123456789)) })
	t.Run("named int64 key", func(t *testing.T) { freshHits(t, accountID(1234567890123456789)) })
	t.Run("uint64 key", func(t *testing.T) { freshHits(t, uint64(12345678901234567890)) })
}

func TestAllocStaleHit(t *testing.T) {
	countable(t)
	t.Run("string key", func(t *testing.T) { staleHits(t, "some-account-name") })
	t.Run("named string key", func(t *testing.T) { staleHits(t, accountName("some-account-name")) })
	t.Run("int key", func(t *testing.T) { staleHits(t, 1234567) })
	t.Run("int64 key", func(t *testing.T) { staleHits(t, int64(-1234567890123456789)) })
}

func TestAllocHitOfNotFound(t *testing.T) {
	countable(t)
	l := loader.Func(func(context.Context, string) (account, error) { return account{}, ErrNotFound })
	c := newCache(t, "alloc", l, Options{TTL: time.Hour, NegativeTTL: time.Hour})
	_, err := c.Get(t.Context(), "k")
	isErr(t, err, ErrNotFound)
	c.local.tier.Wait()
	noAllocs(t, "Get", func() { _, _ = c.Get(t.Context(), "k") })
	equal(t, "loads", c.Stats().Loads, 1)
}

// A copy too large for the table is found in ristretto, and one that ristretto refused among
// the recent loads.
func TestAllocHitPastTheTable(t *testing.T) {
	countable(t)
	l := tierOf[int](t, roomyBudget)
	large, recent := heldAs("large", 1), heldAs("recent", 1)
	large.size = hotSize
	l.keep(large)
	l.tier.Wait()
	l.keep(recent)
	l.tier.Wait()
	l.tier.Del(recent.hash)
	noAllocs(t, "in ristretto", func() { l.lookup(large.hash, "large", asking) })
	noAllocs(t, "in the recent loads", func() { l.lookup(recent.hash, "recent", asking) })
	equal(t, "found in ristretto", l.lookup(large.hash, "large", asking), large)
	equal(t, "found in the recent loads", l.lookup(recent.hash, "recent", asking), recent)
}

func TestAllocsOfATaggedHit(t *testing.T) {
	countable(t)
	l := loader.Revalidate(func(context.Context, string, *loader.Previous[account]) (loader.Result[account], error) {
		return loader.Result[account]{Value: account{"a", 1}, Tags: []string{"red", "blue"}}, nil
	})
	c := newCache(t, "alloc", l, Options{TTL: time.Hour, StaleWhileRevalidate: time.Hour})
	_, err := c.Get(t.Context(), "k")
	must(t, err)
	c.local.tier.Wait()
	t.Run("fresh", func(t *testing.T) { hits(t, c, "k", StateFresh) })
	must(t, c.ExpireTag(t.Context(), "red"))
	t.Run("stale", func(t *testing.T) { hits(t, c, "k", StateStale) })
}
