package cache_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
)

// TestStuckBatchesAreBoundedAsStuckLoadsAre: a query that ignores its context is a stuck load, whoever
// calls it for the loader.
func TestStuckBatchesAreBoundedAsStuckLoadsAre(t *testing.T) {
	o := settings()
	o.MaxConcurrentLoads, o.LoadTimeout, o.StaleWhileRevalidate = 4, time.Second, cache.Off
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int64
		end := make(chan struct{})
		batch := func(context.Context, []string) (map[string]string, error) {
			running.Add(1)
			defer running.Add(-1)
			<-end
			return nil, nil
		}
		c, err := cache.New("batched", loader.Coalesce(batch, 10, time.Millisecond), o)
		must(t, err)
		for range 300 {
			_, _ = c.Get(t.Context(), "k")
			time.Sleep(time.Second)
		}
		equal(t, "queries that run", running.Load(), 1)
		equal(t, "abandoned now", c.Stats().AbandonedNow, 1)
		close(end)
		synctest.Wait()
		equal(t, "abandoned when they have ended", c.Stats().AbandonedNow, 0)
		must(t, c.Close())
	})
}

// TestShutdownLetsARunningLoadFinishThatNeedsAnotherKey, and it is no failure.
func TestShutdownLetsARunningLoadFinishThatNeedsAnotherKey(t *testing.T) {
	inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
		var a *node
		l := loader.Func(func(ctx context.Context, key string) (string, error) {
			if err := pass(ctx, 200*time.Millisecond); err != nil || key != "outer" {
				return key, err
			}
			return a.Get(ctx, "inner")
		})
		wire, _ := f.dial()
		a = f.joinWith(l, wire, settings())
		wire, _ = f.dial()
		b := f.joinWith(loader.Func(func(context.Context, string) (string, error) { return "", fmt.Errorf("not stored by the other node") }), wire, settings())
		c := start(t.Context(), 1, "outer", a)
		time.Sleep(100 * time.Millisecond)
		must(t, a.Shutdown(t.Context()))
		g := c.wait()[0]
		must(t, g.err)
		equal(t, "value", g.value, "inner")
		gets(t, b, "outer", "inner")
		gets(t, b, "inner", "inner")
	})
}

// TestALoadThatNeedsACacheThatIsClosedIsNoFailureOfTheDatabase: nothing is left alone for it.
func TestALoadThatNeedsACacheThatIsClosedIsNoFailureOfTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner, err := cache.New("inner", loader.Func(func(context.Context, string) (string, error) { return "v", nil }), settings())
		must(t, err)
		outer, err := cache.New("outer", loader.Func(func(ctx context.Context, k string) (string, error) { return inner.Get(ctx, k) }), settings())
		must(t, err)
		defer outer.Close()
		must(t, inner.Close())
		for range 2 {
			if _, err := outer.Get(t.Context(), "k"); err != cache.ErrClosed {
				t.Errorf("got %v, want ErrClosed", err)
			}
		}
	})
}

func TestAnEarlyRefreshOfASlowLoadBeginsInTheLastFifthOfTheTTL(t *testing.T) {
	o := settings()
	o.EarlyRefresh, o.LoadTimeout = 1, time.Minute
	alike(t, o, func(t *testing.T, s *source, n *node) {
		s.query = takes(20 * time.Second)
		gets(t, n, "k", value("k", 1))
		stored := time.Now()
		for n.Stats().EarlyRefreshes == 0 {
			gets(t, n, "k", value("k", 1))
			time.Sleep(10 * time.Millisecond)
		}
		if d := time.Since(stored); d < 8*time.Second || d > 10*time.Second {
			t.Errorf("the refresh began after %v of a TTL of 10 s", d)
		}
		time.Sleep(20 * time.Second) // until it has ended
	})
}
