package cache_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// The race by which old values come back: a load that has read the old row, and a delete at any moment of it, on
// the same node or on another. Copies live for 10 min here, so that whatever comes back would stay.
func TestTheOldValueNeverReturns(t *testing.T) {
	const parts = 4 // to keep all cores busy
	for part := range parts {
		t.Run(fmt.Sprint("part ", part), func(t *testing.T) {
			t.Parallel()
			inBubbleWithEars(t, 3, hours(), func(t *testing.T, f *fleet, _ ears) {
				f.query = takes(300 * time.Millisecond)
				for round := range soak(40, 1000) / parts {
					f.oldValueReturns(t, fmt.Sprint("k", round), f.nodes[round%2])
					if t.Failed() {
						t.Fatalf("in round %d", round)
					}
				}
			})
		})
	}
}

// oldValueReturns is one round, in a bubble: node 0 loads for 300 ms, the others wait for it from some moment on, and
// meanwhile, or a little later, a node deletes.
func (f *fleet) oldValueReturns(t *testing.T, key string, by *node) {
	t.Helper()
	v1 := value(key, 1)
	before := start(t.Context(), 1, key, f.nodes[0])
	offset := rand.N(330 * time.Millisecond)
	second := rand.N(offset + 1)
	time.Sleep(second)
	before.get(t.Context(), f.nodes[1], key)
	time.Sleep(offset - second)
	v2 := f.write(key)
	must(t, by.Delete(t.Context(), key))
	f.never(key, v1)
	after := start(t.Context(), 1, key, by) // at once
	synctest.Wait()                         // the message has come
	for _, n := range f.nodes {
		after.get(t.Context(), n, key)
	}
	for _, g := range after.wait() {
		if g.value != v2 || g.err != nil {
			t.Errorf("delete after %v: got %q, %v", offset, g.value, g.err)
		}
	}
	for _, g := range before.wait() {
		if g.err != nil || g.value != v1 && g.value != v2 {
			t.Errorf("delete after %v: a caller from before got %q, %v", offset, g.value, g.err)
		}
	}
	time.Sleep(300 * time.Millisecond)
	for _, n := range f.nodes {
		gets(t, n, key, v2)
	}
	f.stores(key, v2)
}

// The same on a real server, with loads of up to 4 ms. When the message has come is not known there: a node that
// has once shown the new value shows no older one, and all have after a while.
func TestTheOldValueNeverReturnsOnARealServer(t *testing.T) {
	o := hours()
	o.RedisTimeout = 5 * time.Second
	s := redistest.Shared(t)
	f := newFleet(t, s.Client(t), o, func() (redis.UniversalClient, *redistest.Link) { return s.Client(t), nil })
	f.grow(4)
	f.query = takes(4 * time.Millisecond)
	prefix := redistest.Prefix(t)
	rounds := make(chan int)
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for round := range rounds {
				f.oldValueReturnsForReal(t, fmt.Sprint(prefix, round), f.nodes[round%2])
			}
		})
	}
	for round := range soak(150, 1000) {
		rounds <- round
	}
	close(rounds)
	running.Wait()
}

func (f *fleet) oldValueReturnsForReal(t *testing.T, key string, by *node) {
	before := start(t.Context(), 4, key, f.nodes...)
	<-time.After(rand.N(6 * time.Millisecond))
	v2 := f.write(key)
	if err := by.Delete(t.Context(), key); err != nil {
		t.Error(err)
	}
	gets(t, by, key, v2)
	var news sync.WaitGroup
	for _, n := range f.nodes {
		news.Go(func() { eventuallyGets(t, n, key, v2) })
	}
	news.Wait()
	before.wait()
	<-time.After(time.Millisecond)
	for _, n := range f.nodes {
		gets(t, n, key, v2)
	}
	f.stores(key, v2)
}

// eventuallyGets reads until a message must have come.
func eventuallyGets(t *testing.T, n *node, key, want string) {
	for began := time.Now(); ; <-time.After(time.Millisecond) {
		v, err := n.Get(t.Context(), key)
		switch {
		case err == nil && v == want:
			return
		case err != nil || time.Since(began) > 2*time.Second:
			t.Errorf("got %q, %v, want %s", v, err, want)
			return
		}
	}
}
