package cache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

func TestAClosedCacheRefusesEveryCall(t *testing.T) {
	for situation, o := range map[string]Options{
		"with a local tier":    minute,
		"without a local tier": minute.with(setting{"LocalMaxBytes", Off}),
		"with Redis":           withRedis(unused(t)),
	} {
		t.Run(situation, func(t *testing.T) {
			if o.Redis != nil {
				o.RedisTimeout = time.Millisecond
			}
			c, err := New("user", always[string](7), o)
			must(t, err)
			_, err = c.Get(t.Context(), "k") // cached, and refused all the same
			must(t, err)
			must(t, c.Close())
			must(t, c.Close())

			_, err = c.Get(t.Context(), "k")
			isErr(t, err, ErrClosed)
			_, err = c.Get(t.Context(), "k", Fresh())
			isErr(t, err, ErrClosed)
			_, err = c.GetEntry(t.Context(), "k")
			isErr(t, err, ErrClosed)
			_, _, err = c.Peek(t.Context(), "k")
			isErr(t, err, ErrClosed)
			_, err = c.Refresh(t.Context(), "k")
			isErr(t, err, ErrClosed)
			isErr(t, c.Set(t.Context(), "k", 1), ErrClosed)
			isErr(t, c.Delete(t.Context(), "k"), ErrClosed)
			isErr(t, c.Expire(t.Context(), "k"), ErrClosed)
			must(t, c.Shutdown(t.Context()))
			equal(t, "Redis key", c.RedisKey("k"), "levee1:user:k")
			equal(t, "loads", c.Stats().Loads, 1)
		})
	}
}

// slow loads take d, and obey their context.
func slow(d time.Duration) loader.Loader[string, int] {
	return loader.Func(func(ctx context.Context, _ string) (int, error) {
		select {
		case <-time.After(d):
			return 7, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	})
}

// callers is many Gets, each of a key of its own, and how they ended.
func callers(t *testing.T, c *Cache[string, int], n int) (wait func() []error) {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { _, errs[i] = c.Get(t.Context(), fmt.Sprint("key", i)) })
	}
	synctest.Wait()
	return func() []error {
		all.Wait()
		return errs
	}
}

func inBothTiers(t *testing.T, f func(t *testing.T, o Options)) {
	t.Helper()
	t.Run("without Redis", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, minute) })
	})
	t.Run("with Redis", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { f(t, withRedis(redistest.Bubble(t).Client(t))) })
	})
}

func TestB116_CloseEndsRunningLoadsAndThoseWhoWaitForThem(t *testing.T) {
	inBothTiers(t, func(t *testing.T, o Options) {
		c, err := New("user", slow(time.Hour), o)
		must(t, err)
		wait := callers(t, c, 20)
		began := time.Now()
		must(t, c.Close())
		if d := time.Since(began); d > time.Second {
			t.Errorf("Close took %v", d)
		}
		for _, err := range wait() {
			isErr(t, err, ErrClosed)
		}
	})
}

func TestShutdownWaitsForRunningLoads(t *testing.T) {
	inBothTiers(t, func(t *testing.T, o Options) {
		c, err := New("user", slow(3*time.Second), o)
		must(t, err)
		wait := callers(t, c, 20)
		began := time.Now()
		must(t, c.Shutdown(t.Context()))
		if d := time.Since(began); d < 3*time.Second || d > 4*time.Second {
			t.Errorf("Shutdown took %v", d)
		}
		for _, err := range wait() {
			must(t, err)
		}
		_, err = c.Get(t.Context(), "key0")
		isErr(t, err, ErrClosed)
	})
}

func TestShutdownLetsNoLoadBegin(t *testing.T) {
	inBothTiers(t, func(t *testing.T, o Options) {
		c, err := New("user", slow(3*time.Second), o)
		must(t, err)
		wait := callers(t, c, 1)
		var shutting sync.WaitGroup
		shutting.Go(func() { must(t, c.Shutdown(t.Context())) })
		synctest.Wait()
		_, err = c.Get(t.Context(), "another")
		isErr(t, err, ErrClosed)
		for _, err := range wait() {
			must(t, err)
		}
		shutting.Wait()
		equal(t, "loads", c.Stats().Loads, 1)
	})
}

func TestB116_ShutdownWaitsNoLongerThanItsContext(t *testing.T) {
	inBothTiers(t, func(t *testing.T, o Options) {
		c, err := New("user", slow(time.Hour), o)
		must(t, err)
		wait := callers(t, c, 20)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		isErr(t, c.Shutdown(ctx), context.DeadlineExceeded)
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("Shutdown took %v", d)
		}
		for _, err := range wait() {
			isErr(t, err, ErrClosed)
		}
	})
}

func TestShutdownOfAnIdleCacheIsAClose(t *testing.T) {
	inBothTiers(t, func(t *testing.T, o Options) {
		c, err := New("user", slow(time.Millisecond), o)
		must(t, err)
		_, err = c.Get(t.Context(), "k")
		must(t, err)
		began := time.Now()
		must(t, c.Shutdown(t.Context()))
		equal(t, "took", time.Since(began), 0)
		must(t, c.Shutdown(t.Context()))
		must(t, c.Close())
	})
}

func TestLeasesAreGivenBackByClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.Bubble(t)
		o := withRedis(b.Client(t))
		c, err := New("user", slow(time.Hour), o)
		must(t, err)
		wait := callers(t, c, 5)
		equal(t, "leases", len(entries(b)), 5)
		must(t, c.Close())
		wait()
		equal(t, "leases left", len(entries(b)), 0)
	})
}

func TestCloseDoesNotWaitForARedisThatIsFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := redistest.Bubble(t)
		o := withRedis(b.Client(t))
		c, err := New("user", slow(time.Hour), o)
		must(t, err)
		wait := callers(t, c, 5)
		b.Freeze()
		began := time.Now()
		must(t, c.Close())
		if d := time.Since(began); d > 250*time.Millisecond+250*time.Millisecond {
			t.Errorf("Close took %v", d)
		}
		for _, err := range wait() {
			if err == nil {
				t.Error("a value came from nowhere")
			}
		}
		b.Thaw()
	})
}

func TestCloseInsideALoadIsNoDeadlockForTheCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c *Cache[string, int]
		closed := make(chan error, 1)
		l := loader.Func(func(ctx context.Context, _ string) (int, error) {
			go func() { closed <- c.Close() }()
			<-ctx.Done()
			return 0, ctx.Err()
		})
		var err error
		c, err = New("user", l, minute)
		must(t, err)
		_, err = c.Get(t.Context(), "k")
		isErr(t, err, ErrClosed)
		must(t, <-closed)
	})
}

func TestALoaderThatIgnoresItsContextDoesNotHoldUpClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := make(chan struct{})
		l := loader.Func(func(context.Context, string) (int, error) {
			<-back
			return 7, errors.New("too late")
		})
		c, err := New("user", l, minute)
		must(t, err)
		wait := callers(t, c, 3)
		began := time.Now()
		must(t, c.Close())
		equal(t, "took", time.Since(began), 0)
		for _, err := range wait() {
			isErr(t, err, ErrClosed)
		}
		equal(t, "abandoned loads that still run", c.Stats().AbandonedNow, 3)
		close(back)
		synctest.Wait()
		equal(t, "abandoned loads that still run in the end", c.Stats().AbandonedNow, 0)
	})
}
