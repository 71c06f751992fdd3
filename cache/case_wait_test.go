package cache_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// deaf is a client whose subscriptions go to a server where nothing is ever published.
type deaf struct {
	*redis.Client
	nowhere *redis.Client
}

func (d *deaf) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return d.nowhere.Subscribe(ctx, channels...)
}

// addDeaf adds a node that hears no wake-up.
func (f *fleet) addDeaf() *node {
	link := f.mini.Link()
	return f.add(&deaf{link.Client(f.t, roomy), redistest.Bubble(f.t).Client(f.t)}, link, f.options)
}

// pollCap is the longest pause of a waiter that hears nothing: 500 ms, spread by half.
const pollCap = 750 * time.Millisecond

func TestB40_AWaiterThatHearsNoWakeUpPolls(t *testing.T) {
	inBubble(t, 1, settings(), func(t *testing.T, f *fleet) {
		f.query = takes(100 * time.Millisecond)
		f.addDeaf()
		holder := start(t.Context(), 1, "k", f.nodes[0])
		synctest.Wait()
		for _, g := range start(t.Context(), 50, "k", f.nodes[1]).wait() {
			must(t, g.err)
			equal(t, "value", g.value, value("k", 1))
			within(t, "a wait", g.took, 100*time.Millisecond+pollCap)
		}
		allGet(t, holder.wait(), value("k", 1), 100*time.Millisecond)
		equal(t, "loads", f.queries(), 1)
	})
}

func TestB40_AWaiterTakesOverALeaseThatRanOut(t *testing.T) {
	o := settings()
	o.LoadTimeout = time.Minute
	inBubble(t, 1, o, func(t *testing.T, f *fleet) {
		f.query = func(ctx context.Context, _ string, n int) error {
			if n == 1 {
				return pass(ctx, 30*time.Second)
			}
			return pass(ctx, 100*time.Millisecond)
		}
		f.addDeaf()
		holder := start(t.Context(), 1, "k", f.nodes[0])
		time.Sleep(100 * time.Millisecond)
		f.nodes[0].link.Freeze() // as if it had died
		for _, g := range start(t.Context(), 50, "k", f.nodes[1]).wait() {
			must(t, g.err)
			equal(t, "value", g.value, value("k", 1))
			within(t, "a wait", g.took, o.Lease+pollCap+100*time.Millisecond)
		}
		equal(t, "loads", f.queries(), 2)
		f.nodes[0].link.Thaw()
		must(t, holder.wait()[0].err)
	})
}

// The other node's commands take 2 ms, so what it is woken for is gone when it looks.
func TestB42_AValueThatExpiresAtOnceReachesAllWhoWaitedForIt(t *testing.T) {
	for _, ttl := range []time.Duration{time.Millisecond, time.Nanosecond} {
		t.Run(ttl.String(), func(t *testing.T) {
			o := settings()
			o.TTL, o.StaleWhileRevalidate = ttl, cache.Off
			inBubble(t, 2, o, func(t *testing.T, f *fleet) {
				f.query = takes(300 * time.Millisecond)
				f.nodes[1].faults.Delay(redistest.Name("get", "getrange", "evalsha"), 2*time.Millisecond)
				here := start(t.Context(), 200, "k", f.nodes[0])
				synctest.Wait()
				there := start(t.Context(), 50, "k", f.nodes[1])
				allGet(t, here.wait(), value("k", 1), 300*time.Millisecond)
				for _, g := range there.wait() {
					if g.value != value("k", 1) || g.err != nil {
						t.Fatalf("a caller on the other node got %q, %v", g.value, g.err)
					}
					within(t, "a wait", g.took, 650*time.Millisecond)
				}
				if loads := f.queries(); loads > 2 {
					t.Errorf("%d loads, want one more at most", loads)
				}
			})
		})
	}
}
