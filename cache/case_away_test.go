package cache_test

import (
	"errors"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
)

// swallow is, in a bubble, a black hole before Redis for d: nothing of what was sent meanwhile arrives later.
func (f *fleet) swallow(d time.Duration) {
	f.mini.Freeze()
	time.Sleep(d)
	for _, n := range f.nodes {
		n.link.Cut()
	}
	f.mini.Thaw()
}

// deletedWhileAway has v1 warm on all nodes, and node 0 delete it while Redis swallows everything, for 3 s. It is for
// use in a bubble.
func (f *fleet) deletedWhileAway(t *testing.T) {
	f.query = takes(0)
	f.fans(t, "k", 1)
	time.Sleep(time.Second)
	back := make(chan struct{})
	go func() { f.swallow(3 * time.Second); close(back) }()
	time.Sleep(time.Millisecond)
	f.write("k0")
	began := time.Now()
	err := f.nodes[0].Delete(t.Context(), "k0")
	e, ok := errors.AsType[*cache.InvalidationError](err)
	if !ok || e.Key != "k0" || e.Bound != f.options.TTL+f.options.StaleWhileRevalidate {
		t.Errorf("got %v, want an InvalidationError about all of the entry's life", err)
	}
	within(t, "the Delete", time.Since(began), f.options.RedisTimeout)
	gets(t, f.nodes[0], "k0", value("k0", 2)) // the local copy is gone all the same
	<-back
}

func TestB66_ADeleteWhileRedisWasAwayIsMadeUpFor(t *testing.T) {
	inBubble(t, 3, hours(), func(t *testing.T, f *fleet) {
		f.deletedWhileAway(t)
		time.Sleep(2 * time.Second)
		for _, n := range f.nodes {
			gets(t, n, "k0", value("k0", 2))
		}
		f.stores("k0", value("k0", 2))
	})
}

// What is not guaranteed: without the retries the old value is in Redis until it is deleted again, or its
// windows end. The error's Bound says so.
func TestB66_WithoutRetriesTheCallerMakesUpForADelete(t *testing.T) {
	o := hours()
	o.RetryDeletes = cache.Off
	inBubble(t, 3, o, func(t *testing.T, f *fleet) {
		f.deletedWhileAway(t)
		time.Sleep(2 * time.Second)
		f.stores("k0", value("k0", 1))
		must(t, f.nodes[0].Delete(t.Context(), "k0"))
		f.never("k0", value("k0", 1))
		time.Sleep(10 * time.Millisecond)
		for _, n := range f.nodes {
			gets(t, n, "k0", value("k0", 2))
		}
	})
}
