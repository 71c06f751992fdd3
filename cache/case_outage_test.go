package cache_test

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// timed is a call and when it was made.
type timed struct {
	asked time.Duration
	got
}

// steady makes so many calls a second for d, over nodes and keys in turn, in a bubble.
func (f *fleet) steady(t *testing.T, perSecond, keys int, d time.Duration) []timed {
	began := time.Now()
	var running sync.WaitGroup
	made := make(chan timed, int(d/time.Second+1)*perSecond)
	for i := 0; time.Since(began) < d; i++ {
		n, key := f.nodes[i%len(f.nodes)], strconv.Itoa(i/len(f.nodes)%keys)
		running.Go(func() {
			asked := time.Now()
			v, err := n.Get(t.Context(), key)
			if err != nil || v != value(key, 1) {
				t.Errorf("after %v: got %q, %v", asked.Sub(began), v, err)
			}
			made <- timed{asked.Sub(began), got{n, v, err, time.Since(asked)}}
		})
		time.Sleep(time.Second / time.Duration(perSecond))
	}
	running.Wait()
	close(made)
	var list []timed
	for c := range made {
		list = append(list, c)
	}
	return list
}

// percentile is how long a share of the calls took at most, of those made from some moment on.
func percentile(list []timed, share float64, from time.Duration) time.Duration {
	var took []time.Duration
	for _, c := range list {
		if c.asked >= from {
			took = append(took, c.took)
		}
	}
	slices.Sort(took)
	return took[min(len(took)-1, int(share*float64(len(took))))]
}

// works checks that the nodes share their work: values, leases and wake-ups.
func (f *fleet) works(t *testing.T, key string) {
	t.Helper()
	before := f.queries()
	for _, g := range start(t.Context(), 10*len(f.nodes), key, f.nodes...).wait() {
		if g.err != nil || g.value != value(key, 1) {
			t.Errorf("got %q, %v", g.value, g.err)
		}
	}
	equal(t, "loads of a cold key in the fleet", f.queries()-before, 1)
	f.stores(key, value(key, 1))
}

func TestB75_RedisMayBeDownAtStartUp(t *testing.T) {
	for _, tc := range []struct {
		name string
		down func(b *redistest.BubbleServer, l *redistest.Link, on bool)
	}{
		{"closed port", func(_ *redistest.BubbleServer, l *redistest.Link, on bool) { l.Refuse(on) }},
		{"black hole", func(_ *redistest.BubbleServer, l *redistest.Link, on bool) {
			if l.Thaw(); on {
				l.Freeze()
			}
		}},
		{"wrong password", func(b *redistest.BubbleServer, _ *redistest.Link, on bool) {
			synctest.Wait() // nobody is logging in
			if b.Mini().RequireAuth(""); on {
				b.Mini().RequireAuth("secret")
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
				dial := f.dial
				f.dial = func() (redis.UniversalClient, *redistest.Link) {
					c, l := dial()
					tc.down(f.mini, l, true)
					return c, l
				}
				began := time.Now()
				f.grow(2)
				equal(t, "time to build", time.Since(began), 0)

				const keys = 10
				for _, c := range f.steady(t, 50, keys, 20*time.Second) {
					within(t, "a call", c.took, 300*time.Millisecond) // RedisTimeout and a load
				}
				equal(t, "loads at once", f.peak(), 2) // one per node
				if loads := f.queries(); loads > 2*keys*21 {
					t.Errorf("%d loads, want one per node, key and LocalTTL", loads)
				}
				for _, n := range f.nodes {
					tc.down(f.mini, n.link, false)
				}
				f.steady(t, 50, keys, 5*time.Second)
				f.works(t, "afterwards")
			})
		})
	}
}

// Our breaker probes with one call of each node and second, and such a call may lose
// RedisTimeout: at this rate these are more than one in a hundred, so it is the 95th percentile
// that drops to nothing.
func TestB76_AFrozenRedisIsLeftAloneUntilItAnswers(t *testing.T) {
	inBubble(t, 3, settings(), func(t *testing.T, f *fleet) {
		f.query = takes(20 * time.Millisecond)
		const keys, perSecond = 50, 200
		f.steady(t, perSecond, keys, 2*time.Second)
		synctest.Wait()

		f.mini.Freeze()
		idle, asked := ourGoroutines(), f.begun("get", "getrange")
		list := f.steady(t, perSecond, keys, 30*time.Second)
		within(t, "99 of 100 calls", percentile(list, 0.99, 0), 120*time.Millisecond)
		within(t, "95 of 100 calls with the breaker open", percentile(list, 0.95, 2*time.Second), 0)
		within(t, "the slowest call", percentile(list, 1, 0), 120*time.Millisecond)
		if grown := ourGoroutines() - idle; grown > 3*256 { // stuck inside the client
			t.Errorf("%d goroutines more than before", grown)
		}
		if probes := f.begun("get", "getrange") - asked; probes > 3*(30+10) {
			t.Errorf("%d reads were sent by three nodes in 30 s, want one a second of each", probes)
		}

		f.mini.Thaw()
		f.steady(t, perSecond, keys, 5*time.Second)
		f.works(t, "afterwards")
		before := f.sum(func(s cache.Stats) int64 { return s.RedisErrors })
		list = f.steady(t, perSecond, keys, 2*time.Second)
		within(t, "99 of 100 calls afterwards", percentile(list, 0.99, 0), 20*time.Millisecond)
		equal(t, "calls without Redis afterwards", f.sum(func(s cache.Stats) int64 { return s.RedisErrors })-before, 0)
	})
}
