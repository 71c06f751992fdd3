package cache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
)

// The loader fails for 10 s after the entry has gone stale: at once in the first half, after a
// second in the other. Our back-off grows to 5 s, and the new value is there within that and a
// load after the source has recovered.
func TestB45_AFailingLoaderIsHiddenByTheStaleValue(t *testing.T) {
	inBubble(t, 3, settings(), func(t *testing.T, f *fleet) {
		for _, n := range f.nodes {
			gets(t, n, "k", value("k", 1))
		}
		time.Sleep(11 * time.Second)
		v2 := f.write("k")
		began := time.Now()
		f.query = func(ctx context.Context, _ string, _ int) error {
			switch now := time.Since(began); {
			case now >= 10*time.Second:
				return pass(ctx, 200*time.Millisecond)
			case now >= 5*time.Second:
				_ = pass(ctx, time.Second)
			}
			return errors.New("no route to the database")
		}
		attempts := 0
		recovered := map[*node]time.Duration{}
		for time.Since(began) < 16*time.Second {
			for i, n := range f.nodes {
				asked := time.Now()
				e, err := n.GetEntry(t.Context(), "k")
				within(t, "a call", time.Since(asked), 5*time.Millisecond)
				switch {
				case err != nil || e.Value != value("k", 1) && e.Value != v2:
					t.Fatalf("node %d, after %v: got %+v, %v", i, time.Since(began), e, err)
				case e.Value == v2 && recovered[n] == 0:
					recovered[n] = time.Since(began)
				case e.Value != v2 && (e.State != cache.StateStale || recovered[n] > 0):
					t.Fatalf("node %d, after %v: got %+v", i, time.Since(began), e)
				}
			}
			if time.Since(began) == 10*time.Second {
				attempts = f.queries() - 1
				equal(t, "an entry is there", f.raw("k") != "", true)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if attempts < 3 || attempts > 10 {
			t.Errorf("%d attempts in 10 s, want about one a second or fewer", attempts)
		}
		equal(t, "failures counted", f.sum(func(s cache.Stats) int64 { return s.Failures }) >= int64(attempts-1), true)
		for _, n := range f.nodes {
			if recovered[n] == 0 {
				t.Error("a node has not recovered")
			}
			within(t, "until the new value is seen", recovered[n], 15*time.Second+300*time.Millisecond)
		}
		equal(t, "loads at once", f.peak(), 1)
	})
}

func TestB50_WhateverIsMissingInRedisReadsAsAMiss(t *testing.T) {
	inBubble(t, 2, settings(), func(t *testing.T, f *fleet) {
		a, b := f.nodes[0], f.nodes[1]
		must(t, a.Set(t.Context(), "k", "set"))
		must(t, a.Delete(t.Context(), "k"))
		equal(t, "keys after a delete", fmt.Sprint(f.keys()), "[]")
		if _, ok, err := b.Peek(t.Context(), "k"); ok || err != nil {
			t.Errorf("after a delete Peek finds something, or fails: %v", err)
		}
		gets(t, a, "k", value("k", 1))

		keys := f.keys()
		equal(t, "keys of an entry", fmt.Sprint(keys), fmt.Sprint([]string{a.RedisKey("k")}))
		for i, key := range keys { // by hand, each in turn
			must(t, f.probe.Del(t.Context(), key).Err())
			gets(t, b, "k", value("k", 1))
			equal(t, "loads", f.queries(), 2+i)
		}
	})
}

func TestB51_RedisKeepsAnEntryToTheEndOfItsStaleWindow(t *testing.T) {
	o := settings()
	o.TTL, o.StaleWhileRevalidate = time.Second, 10*time.Second
	inBubble(t, 1, o, func(t *testing.T, f *fleet) {
		gets(t, f.nodes[0], "k", value("k", 1))
		time.Sleep(1500 * time.Millisecond)
		equal(t, "left in Redis", f.lifetimes()[f.nodes[0].RedisKey("k")], 9500*time.Millisecond)
		f.query = func(context.Context, string, int) error { return errors.New("no route to the database") }
		f.grow(1) // with nothing in memory
		e, err := f.nodes[1].GetEntry(t.Context(), "k")
		if e.Value != value("k", 1) || e.Source != cache.SourceRemote || e.State != cache.StateStale || err != nil {
			t.Errorf("got %+v, %v, want the stale value from Redis", e, err)
		}
	})
}
