package cache

import (
	"context"
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// wants are ways to ask that memory can answer, and all of them in one call.
func wants(more ...CallOption) map[string][]CallOption {
	all := append([]CallOption{NoStore(), WaitFresh(0)}, more...)
	ways := map[string][]CallOption{"no option": nil, "all of these": all}
	for name, o := range map[string]CallOption{"Fresh": Fresh(), "NoStore": NoStore(), "SkipLocal": SkipLocal(),
		"WaitFresh": WaitFresh(time.Second), "WaitFresh of 0": WaitFresh(0)} {
		for _, mine := range all {
			if mine == o {
				ways[name] = []CallOption{o}
			}
		}
	}
	return ways
}

// hitsWith has a cache answer for k from memory in all ways, without an allocation. Options that
// are given one by one are made at the call, as callers do.
func hitsWith(t *testing.T, c *Cache[string, account], k string, want State, ways map[string][]CallOption) {
	t.Helper()
	ctx := t.Context()
	for name, options := range ways {
		e, err := c.GetEntry(ctx, k, options...)
		must(t, err)
		equal(t, "state with "+name, e.State, want)
		equal(t, "source with "+name, e.Source, SourceLocal)
		noAllocs(t, "Get with "+name, func() { _, _ = c.Get(ctx, k, options...) })
		noAllocs(t, "GetEntry with "+name, func() { _, _ = c.GetEntry(ctx, k, options...) })
	}
	noAllocs(t, "Get with options made at the call", func() { _, _ = c.Get(ctx, k, NoStore(), WaitFresh(0)) })
	noAllocs(t, "GetEntry with options made at the call", func() { _, _ = c.GetEntry(ctx, k, NoStore(), WaitFresh(0)) })
}

func TestAllocLocalHitWithAnyOption(t *testing.T) {
	countable(t)
	for situation, tc := range map[string]struct {
		o    Options
		ways map[string][]CallOption
	}{
		"without Redis": {Options{TTL: time.Hour}, wants(Fresh(), WaitFresh(time.Second), SkipLocal())},
		"with Redis":    {Options{TTL: time.Hour, Redis: redistest.Shared(t).Client(t)}, wants(Fresh(), WaitFresh(time.Second))},
		"WaitFresh set": {Options{TTL: time.Hour, WaitFresh: time.Second}, wants(Fresh(), SkipLocal())},
	} {
		t.Run(situation, func(t *testing.T) {
			c := newCache(t, "allocwant", always[string](account{"a", 1}), tc.o)
			_, err := c.Get(t.Context(), "k")
			must(t, err)
			c.local.tier.Wait()
			hitsWith(t, c, "k", StateFresh, tc.ways)
			noAllocs(t, "Get with all options made at the call",
				func() { _, _ = c.Get(t.Context(), "k", Fresh(), NoStore(), WaitFresh(time.Second)) })
		})
	}
}

// TestAllocStaleHitWithAnyOption: also where the caller must overrule Options.WaitFresh to be served
// at once. The refresh is under way all the time.
func TestAllocStaleHitWithAnyOption(t *testing.T) {
	countable(t)
	for situation, tc := range map[string]struct {
		wait time.Duration
		ways map[string][]CallOption
	}{
		"WaitFresh not set": {0, wants(SkipLocal())},
		"WaitFresh set":     {time.Hour, map[string][]CallOption{"WaitFresh of 0": {WaitFresh(0)}, "two of them": {WaitFresh(time.Hour), WaitFresh(0)}}},
	} {
		t.Run(situation, func(t *testing.T) {
			refreshing, loads := make(chan struct{}), 0
			l := loader.Func(func(ctx context.Context, _ string) (account, error) {
				if loads++; loads > 1 { // one at a time: the key is the only one
					close(refreshing)
					<-ctx.Done()
					return account{}, ctx.Err()
				}
				return account{"a", 1}, nil
			})
			c := newCache(t, "allocwant", l, Options{TTL: time.Millisecond, StaleWhileRevalidate: time.Hour, LoadTimeout: time.Hour, WaitFresh: tc.wait})
			_, err := c.Get(t.Context(), "k")
			must(t, err)
			c.local.tier.Wait()
			redistest.Eventually(t, 10*time.Second, func() bool {
				e, err := c.GetEntry(t.Context(), "k", WaitFresh(0))
				return err == nil && e.State == StateStale
			}, "the copy is stale")
			<-refreshing
			hitsWith(t, c, "k", StateStale, tc.ways)
		})
	}
}

func TestAllocHitOfNotFoundWithAnyOption(t *testing.T) {
	countable(t)
	l := loader.Func(func(context.Context, string) (account, error) { return account{}, ErrNotFound })
	c := newCache(t, "allocwant", l, Options{TTL: time.Hour, NegativeTTL: time.Hour})
	_, err := c.Get(t.Context(), "k")
	isErr(t, err, ErrNotFound)
	c.local.tier.Wait()
	for name, options := range wants(Fresh(), WaitFresh(time.Second), SkipLocal()) {
		noAllocs(t, "Get with "+name, func() { _, _ = c.Get(t.Context(), "k", options...) })
	}
	equal(t, "loads", c.Stats().Loads, 1)
}
