package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// smallPool is a client for 200 callers with five connections, through a proxy whose delay changes all
// the time.
func smallPool(t *testing.T, s *redistest.Server, obeys bool) redis.UniversalClient {
	proxy := redistest.NewProxy(t, s.Addr())
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				proxy.Delay(rand.N(500*time.Microsecond), rand.N(500*time.Microsecond))
			case <-stop:
				return
			}
		}
	})
	t.Cleanup(func() { close(stop); running.Wait() })
	return proxy.Client(t, s, func(o *redis.Options) { o.PoolSize, o.ContextTimeoutEnabled = 5, obeys })
}

// A twentieth of the case's keys, for 0.4 s instead of five minutes. There is no local tier, so that all is read from Redis.
// One caller in ten has patience, so that there are answers too.
func TestB89_NobodyGetsTheValueOfAnotherKey(t *testing.T) {
	keys, callers := soak(100, 2000), 200
	for _, obeys := range []bool{false, true} {
		t.Run(fmt.Sprint("with ContextTimeoutEnabled: ", obeys), func(t *testing.T) {
			o := settings()
			o.LocalMaxBytes, o.TTL, o.RedisTimeout = cache.Off, time.Hour, 5*time.Second
			s := redistest.Real(t)
			f := newFleet(t, s.Client(t), o, func() (redis.UniversalClient, *redistest.Link) { return smallPool(t, s, obeys), nil })
			f.grow(1)
			f.query = takes(0)
			n := f.nodes[0]
			ctx, end := context.WithTimeout(t.Context(), time.Duration(soak(400, 150_000))*time.Millisecond)
			defer end()
			var running sync.WaitGroup
			var answered atomic.Int64
			for i := range callers {
				patience := 500 * time.Microsecond
				if i%10 == 0 {
					patience = time.Minute
				}
				running.Go(func() {
					for ctx.Err() == nil {
						if n.getsInTime(t, fmt.Sprint("key", rand.IntN(keys)), rand.N(patience)) {
							answered.Add(1)
						}
					}
				})
			}
			running.Wait()
			equal(t, "some were answered", answered.Load() > 0, true)
			t.Logf("%d answers", answered.Load())
			equal(t, "replies for another key", n.Stats().WrongKey, 0)
			n.swapped(t, f)
		})
	}
}

// getsInTime is a caller with little patience. He gets the value of his key, or nothing.
func (n *node) getsInTime(t *testing.T, key string, patience time.Duration) bool {
	ctx, leave := context.WithTimeout(t.Context(), patience)
	defer leave()
	v, err := n.Get(ctx, key)
	if err == nil && v != value(key, 1) || err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %q, %v of %s", v, err, key)
	}
	return err == nil
}

// swapped puts the entries of two keys in each other's place: both are noticed, and loaded anew.
func (n *node) swapped(t *testing.T, f *fleet) {
	for _, key := range []string{"one", "two"} {
		redistest.Eventually(t, 20*time.Second, func() bool { // calls that were given up on are still under way
			gets(t, n, key, value(key, 1))
			return f.raw(key) != ""
		}, "is stored")
	}
	one, two := f.raw("one"), f.raw("two")
	must(t, f.probe.Set(t.Context(), n.RedisKey("one"), two, time.Minute).Err())
	must(t, f.probe.Set(t.Context(), n.RedisKey("two"), one, time.Minute).Err())
	gets(t, n, "one", value("one", 1))
	gets(t, n, "two", value("two", 1))
	f.stores("one", value("one", 1))
	f.stores("two", value("two", 1))
	equal(t, "entries of another key", n.Stats().WrongKey > 1, true)
}
