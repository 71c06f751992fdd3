package cache_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
)

// replica is a database whose replica shows a write only after lag, and from which a cache loads.
type replica struct {
	lag   time.Duration
	wrote atomic.Int64 // ns; 0: never
	loads atomic.Int64
}

func (r *replica) write() { r.wrote.Store(time.Now().UnixNano()) }

func (r *replica) load(context.Context, string) (string, error) {
	r.loads.Add(1)
	if at := r.wrote.Load(); at == 0 || time.Now().UnixNano() < at+int64(r.lag) {
		return "old", nil
	}
	return "new", nil
}

// held are settings with a hold-down of 2 s, under which values live for 10 min otherwise.
func held(withRedis bool, f *fleet) cache.Options {
	o := hours()
	o.HoldDown = 2 * time.Second
	if withRedis {
		o.Redis, _ = f.dial()
	}
	return o
}

// lagging makes caches in front of one replica; without Redis one.
func lagging(t *testing.T, f *fleet, withRedis bool, r *replica) (all []*cache.Cache[string, string]) {
	for range 2 {
		c, err := cache.New(f.name(), loader.Func(r.load), held(withRedis, f))
		must(t, err)
		t.Cleanup(func() { must(t, c.Close()) })
		all = append(all, c)
		if !withRedis {
			break
		}
	}
	return all
}

// returned is what a cache returns.
func returned(t *testing.T, c *cache.Cache[string, string]) string {
	t.Helper()
	e, err := c.GetEntry(t.Context(), "k")
	must(t, err)
	return fmt.Sprint(e.Value, " ", e.State)
}

var holding = map[string]func(context.Context, *cache.Cache[string, string]) error{
	"Delete": func(ctx context.Context, c *cache.Cache[string, string]) error { return c.Delete(ctx, "k") },
	"Expire": func(ctx context.Context, c *cache.Cache[string, string]) error { return c.Expire(ctx, "k") },
}

// whereverHeld runs body for each kind of invalidation, with and without Redis.
func whereverHeld(t *testing.T, lag time.Duration, body func(*testing.T, *replica, bool, func(), []*cache.Cache[string, string])) {
	t.Helper()
	for name, end := range holding {
		for _, withRedis := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " with Redis ", withRedis), func(t *testing.T) {
				inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
					r := &replica{lag: lag}
					all := lagging(t, f, withRedis, r)
					time.Sleep(time.Millisecond)
					for _, c := range all {
						equal(t, "at first", returned(t, c), "old fresh")
					}
					body(t, r, name == "Expire", func() { must(t, end(t.Context(), all[0])) }, all)
				})
			})
		}
	}
}

// A replica that lags for 1.5 s is read within the hold-down of 2 s again and again: what it had is served for
// no longer than that.
func TestAnOldRowFromAReplicaIsServedNoLongerThanTheHoldDown(t *testing.T) {
	whereverHeld(t, 1500*time.Millisecond, func(t *testing.T, r *replica, _ bool, end func(), all []*cache.Cache[string, string]) {
		r.write()
		end()
		for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(100 * time.Millisecond) {
			for _, c := range all {
				returned(t, c)
			}
		}
		for _, c := range all {
			equal(t, "after the hold-down", returned(t, c), "new fresh")
		}
		most := int64(1 + 2 + 1)
		if n := r.loads.Load(); n > most {
			t.Errorf("%d loads, want %d at most", n, most)
		}
	})
}

// One read within it is enough: the row does not stay though nobody reads it again before the end. A node that was
// served what has expired, loaded before all this, may serve it once more, as stale.
func TestAnOldRowThatWasLoadedWithinAHoldDownGoesWithIt(t *testing.T) {
	whereverHeld(t, 100*time.Millisecond, func(t *testing.T, r *replica, soft bool, end func(), all []*cache.Cache[string, string]) {
		r.write()
		end()
		time.Sleep(50 * time.Millisecond)
		for _, c := range all {
			returned(t, c)
		}
		time.Sleep(3 * time.Second)
		for _, c := range all {
			if got := returned(t, c); got != "new fresh" && (got != "old stale" || !soft) {
				t.Errorf("after the hold-down got %s", got)
			}
			time.Sleep(time.Millisecond)
			equal(t, "in the end", returned(t, c), "new fresh")
		}
		time.Sleep(time.Minute)
		before := r.loads.Load()
		for _, c := range all {
			equal(t, "a minute later", returned(t, c), "new fresh")
		}
		equal(t, "loads a minute later", r.loads.Load()-before, 0)
	})
}

// R24: what follows without one, or with a shorter one, does not end it. Here the second node has none.
func TestALaterHoldDownStands(t *testing.T) {
	inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
		r := &replica{lag: time.Second}
		all := lagging(t, f, true, r)
		o := held(true, f)
		o.HoldDown = cache.Off
		plain, err := cache.New(f.name(), loader.Func(r.load), o)
		must(t, err)
		defer plain.Close()
		for name, end := range holding {
			r.wrote.Store(0)
			must(t, plain.Delete(t.Context(), "k"))
			time.Sleep(5 * time.Second)
			equal(t, name+": at first", returned(t, plain), "old fresh")
			r.write()
			must(t, all[0].Delete(t.Context(), "k"))
			time.Sleep(10 * time.Millisecond)
			must(t, end(t.Context(), plain))
			returned(t, plain)
			time.Sleep(2 * time.Second)
			for _, c := range append(all, plain) {
				equal(t, name+": after the hold-down", returned(t, c), "new fresh")
			}
		}
	})
}

// A Set knows the new row, so it is not held down.
func TestASetIsNotHeldDown(t *testing.T) {
	for _, withRedis := range []bool{true, false} {
		t.Run(fmt.Sprint("with Redis ", withRedis), func(t *testing.T) {
			inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
				r := &replica{lag: time.Second}
				all := lagging(t, f, withRedis, r)
				must(t, all[0].Delete(t.Context(), "k"))
				r.write()
				must(t, all[0].Set(t.Context(), "k", "new"))
				time.Sleep(time.Minute)
				for _, c := range all {
					equal(t, "a minute later", returned(t, c), "new fresh")
				}
				equal(t, "loads", r.loads.Load(), 0)
			})
		})
	}
}

// The load is begun within the hold-down and ends after it.
func TestASlowLoadFromALaggingReplicaDoesNotOutliveTheHoldDown(t *testing.T) {
	for _, withRedis := range []bool{true, false} {
		t.Run(fmt.Sprint("with Redis ", withRedis), func(t *testing.T) {
			inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
				r := &replica{lag: time.Second}
				slow := func(ctx context.Context, key string) (string, error) {
					v, err := r.load(ctx, key)
					return v, orLate(err, pass(ctx, 3*time.Second))
				}
				c, err := cache.New(f.name(), loader.Func(slow), held(withRedis, f))
				must(t, err)
				defer c.Close()
				time.Sleep(time.Millisecond)
				r.write()
				must(t, c.Delete(t.Context(), "k"))
				equal(t, "within", returned(t, c), "old fresh")
				time.Sleep(time.Millisecond)
				equal(t, "after", returned(t, c), "new fresh")
			})
		})
	}
}

func orLate(err, late error) error {
	if err != nil {
		return err
	}
	return late
}
