package cache_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
)

// absent is a fleet with a key that does not exist yet, which every node knows.
func absent(t *testing.T, body func(*testing.T, *fleet)) {
	t.Helper()
	o := settings()
	o.TTL, o.StaleWhileRevalidate = time.Hour, time.Hour
	inBubble(t, 3, o, func(t *testing.T, f *fleet) {
		f.query = func(ctx context.Context, key string, _ int) error {
			err := pass(ctx, 200*time.Millisecond)
			if f.written(key) == 0 {
				err = fmt.Errorf("user %s: %w", key, cache.ErrNotFound)
			}
			return err
		}
		for _, n := range f.nodes {
			e, err := n.GetEntry(t.Context(), "k")
			if !errors.Is(err, cache.ErrNotFound) || !e.NotFound {
				t.Fatalf("got %+v, %v, want not found", e, err)
			}
		}
		equal(t, "loads", f.queries(), 1)
		body(t, f)
	})
}

func (s *source) written(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes[key]
}

// "Not found" was stored at 0 of the bubble, so it ends at 1 s everywhere; the load that follows
// takes 200 ms.
func TestB53_NotFoundEndsWithNegativeTTLOnAllNodes(t *testing.T) {
	absent(t, func(t *testing.T, f *fleet) {
		began, v2 := time.Now(), ""
		seen := map[*node]time.Duration{}
		for time.Since(began) < 2*time.Second {
			if time.Since(began) == 500*time.Millisecond {
				v2 = f.write("k")
			}
			for _, n := range f.nodes {
				asked := time.Since(began)
				e, err := n.GetEntry(t.Context(), "k")
				switch {
				case err == nil && e.Value == v2:
					if seen[n] == 0 {
						seen[n] = time.Since(began)
					}
				case !errors.Is(err, cache.ErrNotFound) || e.State == cache.StateStale || asked >= time.Second:
					t.Errorf("at %v: got %+v, %v", asked, e, err)
				}
			}
			time.Sleep(100*time.Millisecond - time.Since(began)%(100*time.Millisecond))
		}
		for i, n := range f.nodes {
			if seen[n] == 0 || seen[n] > 1200*time.Millisecond {
				t.Errorf("node %d sees the record at %v, want 1 s and a load", i, seen[n])
			}
		}
		equal(t, "loads", f.queries(), 2)
	})
}

// In a bubble: the others may believe "not found" for LocalTTL.
func TestB53_ASetEndsNotFound(t *testing.T) {
	absent(t, func(t *testing.T, f *fleet) {
		time.Sleep(500 * time.Millisecond)
		v2 := f.write("k")
		must(t, f.nodes[0].Set(t.Context(), "k", v2))
		gets(t, f.nodes[0], "k", v2)
		time.Sleep(500 * time.Millisecond) // what is left of the others' belief
		for _, n := range f.nodes {
			gets(t, n, "k", v2)
		}
		equal(t, "loads", f.queries(), 1)
	})
}

// twice loads a value once and checks that two nodes get it, twice each, from all tiers.
func twice[V any](t *testing.T, f *fleet, name string, want V) {
	loads := 0
	l := loader.Func(func(context.Context, int) (V, error) { loads++; return want, nil })
	var caches []*cache.Cache[int, V]
	for range 2 {
		o := settings()
		var client redis.UniversalClient
		client, _ = f.dial()
		o.Redis = client
		c, err := cache.New(name, l, o)
		must(t, err)
		defer c.Close()
		caches = append(caches, c)
	}
	for i, c := range caches {
		for range 2 {
			e, err := c.GetEntry(t.Context(), 7)
			if err != nil || e.NotFound || !reflect.DeepEqual(e.Value, want) {
				t.Errorf("%s: node %d got %#v from %v, %v, want %#v", name, i, e.Value, e.Source, err, want)
			}
		}
	}
	equal(t, "loads of "+name, loads, 1)
}

func TestB54_AnEmptyValueIsAValue(t *testing.T) {
	inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
		type user struct{ Name string }
		twice(t, f, "zero", 0)
		twice(t, f, "false", false)
		twice(t, f, "empty-string", "")
		twice(t, f, "nil-pointer", (*user)(nil))
		twice(t, f, "zero-struct", user{})
		twice(t, f, "nil-slice", []int(nil))
		twice(t, f, "empty-slice", []int{})
		twice(t, f, "nil-bytes", []byte(nil))
		twice(t, f, "empty-bytes", []byte{})
		twice(t, f, "nil-map", map[string]int(nil))
		twice(t, f, "empty-map", map[string]int{})
		twice(t, f, "nil-interface", any(nil))
	})
}
