package cache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

func TestB115_CallsOnRedisMeetTwoCloses(t *testing.T) {
	s := redistest.Shared(t)
	client := s.Client(t)
	l := loader.Func(func(_ context.Context, key int) (string, error) { return fmt.Sprint(key), nil })
	o := settings()
	o.Redis, o.RedisTimeout = client, 10*time.Second
	for range soak(5, 500) {
		c, err := cache.New("b115", l, o)
		must(t, err)
		var all calls
		closing := make(chan struct{})
		for worker := range 64 {
			all.running.Go(func() {
				for i := range 30 {
					if worker < 2 && i == 5 {
						close2(t, c, closing, worker)
					}
					key, err := (worker+i)%10, error(nil)
					switch (worker + i) % 8 {
					case 0:
						err = c.Set(t.Context(), key, fmt.Sprint(key))
					case 1:
						err = c.Delete(t.Context(), key)
					case 2:
						_, err = c.Refresh(t.Context(), key)
					default:
						var v string
						if v, err = c.Get(t.Context(), key); err == nil && v != fmt.Sprint(key) {
							t.Errorf("got %q of %d", v, key)
						}
					}
					if err != nil && !errors.Is(err, cache.ErrClosed) {
						t.Errorf("got %v", err)
					}
				}
			})
		}
		all.running.Wait()
		_, err = c.Get(t.Context(), 1)
		equal(t, "a call after Close fails with ErrClosed", errors.Is(err, cache.ErrClosed), true)
		must(t, c.Close())
	}
	must(t, client.Ping(t.Context()).Err())
}

// close2 lets two callers close at one moment.
func close2(t *testing.T, c *cache.Cache[int, string], both chan struct{}, who int) {
	if who == 0 {
		close(both)
	}
	<-both
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// busy is a fleet of one with 20 loads and 10 refreshes of 3 s under way.
func busy(t *testing.T, body func(t *testing.T, f *fleet, waiting *calls)) {
	t.Helper()
	inBubble(t, 1, settings(), func(t *testing.T, f *fleet) {
		f.query = func(ctx context.Context, _ string, n int) error {
			if time.Now().Second() < 10 {
				return nil
			}
			return pass(ctx, 3*time.Second)
		}
		for i := range 10 {
			gets(t, f.nodes[0], fmt.Sprint("stale", i), value(fmt.Sprint("stale", i), 1))
		}
		time.Sleep(11 * time.Second)
		for i := range 10 {
			gets(t, f.nodes[0], fmt.Sprint("stale", i), value(fmt.Sprint("stale", i), 1))
		}
		waiting := &calls{}
		for i := range 20 {
			waiting.get(t.Context(), f.nodes[0], fmt.Sprint("cold", i))
		}
		time.Sleep(100 * time.Millisecond)
		equal(t, "loads under way", f.queries(), 10+30)
		equal(t, "leases", f.leases(), 30)
		body(t, f, waiting)
	})
}

// Both run in a bubble.
func TestB116_ShutdownEndsInTimeAlthoughRedisIsFrozen(t *testing.T) {
	busy(t, func(t *testing.T, f *fleet, waiting *calls) {
		f.mini.Freeze()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := f.nodes[0].Shutdown(ctx)
		within(t, "Shutdown", time.Since(began), 1100*time.Millisecond)
		equal(t, "it says that it did not wait for all", errors.Is(err, context.DeadlineExceeded), true)
		for _, g := range waiting.wait() {
			equal(t, "a caller is told", errors.Is(g.err, cache.ErrClosed), true)
		}
		loads := f.queries()
		_, err = f.nodes[0].Get(t.Context(), "k")
		equal(t, "a call afterwards fails with ErrClosed", errors.Is(err, cache.ErrClosed), true)
		time.Sleep(5 * time.Second)
		equal(t, "new loads", f.queries()-loads, 0)
		f.mini.Thaw()
		time.Sleep(20 * time.Second) // what is stuck in the client ends by its own timeouts
		equal(t, "goroutines left", ourGoroutines(), 0)
	})
}

// In a bubble, too.
func TestB116_ShutdownWaitsForTheLoadsUnderWay(t *testing.T) {
	busy(t, func(t *testing.T, f *fleet, waiting *calls) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		must(t, f.nodes[0].Shutdown(ctx))
		within(t, "Shutdown", time.Since(began), 2900*time.Millisecond)
		for _, g := range waiting.wait() {
			must(t, g.err)
		}
		equal(t, "loads", f.queries(), 10+30)
		equal(t, "leases", f.leases(), 0)
		synctest.Wait()
		equal(t, "goroutines left", ourGoroutines(), 0)
		for i := range 20 {
			f.stores(fmt.Sprint("cold", i), value(fmt.Sprint("cold", i), 1))
		}
	})
}
