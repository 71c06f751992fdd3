package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// One hot key, read a thousand times a second for a minute of a bubble's time.
const (
	hotTTL   = 3 * time.Second
	hotLoad  = 50 * time.Millisecond
	hotEvery = time.Millisecond
	hotFor   = time.Minute
)

// hotReader reads the key on one node, and tells whether the value was stale.
type hotReader func(ctx context.Context) (stale bool, err error)

// hotTally is what became of the reads.
type hotTally struct{ reads, loads, waited, stale atomic.Int64 }

func (h *hotTally) load(ctx context.Context, _ string) (string, error) {
	h.loads.Add(1)
	pause(hotLoad)
	return "value", ctx.Err()
}

// leveeReader reads through a cache with the options of a mode.
func leveeReader(o cache.Options) func(testing.TB, *hotTally, redis.UniversalClient) hotReader {
	return func(t testing.TB, h *hotTally, client redis.UniversalClient) hotReader {
		o := o
		o.Redis, o.TTL, o.LocalMaxBytes = client, hotTTL, 1<<20
		c, err := cache.New("early", loader.Func(h.load), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return func(ctx context.Context) (bool, error) {
			e, err := c.GetEntry(ctx, "k")
			return e.State == cache.StateStale, err
		}
	}
}

// naiveReader is GET, load, SET.
func naiveReader(_ testing.TB, h *hotTally, client redis.UniversalClient) hotReader {
	return func(ctx context.Context) (bool, error) {
		err := client.Get(ctx, "naive").Err()
		if !errors.Is(err, redis.Nil) {
			return false, err
		}
		v, err := h.load(ctx, "k")
		if err != nil {
			return false, err
		}
		return false, client.Set(ctx, "naive", v, hotTTL).Err()
	}
}

var hotModes = []struct {
	name string
	open func(testing.TB, *hotTally, redis.UniversalClient) hotReader
}{
	{"GET, load, SET", naiveReader},
	{"levee, EarlyRefresh and stale window off", leveeReader(cache.Options{EarlyRefresh: cache.Off, StaleWhileRevalidate: cache.Off})},
	{"levee, EarlyRefresh off", leveeReader(cache.Options{EarlyRefresh: cache.Off})},
	{"levee, stale window off", leveeReader(cache.Options{StaleWhileRevalidate: cache.Off})},
	{"levee", leveeReader(cache.Options{})},
}

// readHot lets nodes read the key, and counts. It runs in a bubble.
func readHot(t *testing.T, nodes int, open func(testing.TB, *hotTally, redis.UniversalClient) hotReader) *hotTally {
	b := redistest.Bubble(t)
	h := &hotTally{}
	readers := make([]hotReader, nodes)
	for i := range readers {
		readers[i] = open(t, h, b.Link().Client(t))
		if _, err := readers[i](t.Context()); err != nil { // warm
			t.Fatal(err)
		}
	}
	h.loads.Store(0)
	var callers sync.WaitGroup
	for began := time.Now(); time.Since(began) < hotFor; pause(hotEvery) {
		read := readers[rand.IntN(nodes)]
		callers.Go(func() { h.read(t, read) })
	}
	callers.Wait()
	return h
}

func (h *hotTally) read(t *testing.T, read hotReader) {
	asked := time.Now()
	stale, err := read(t.Context())
	if err != nil {
		t.Error(err)
	}
	h.reads.Add(1)
	if time.Since(asked) > 0 {
		h.waited.Add(1)
	}
	if stale {
		h.stale.Add(1)
	}
}

// With -v it prints the table of docs/early.md.
func TestEarlyRefreshKeepsAHotKeyFromExpiring(t *testing.T) {
	table := &strings.Builder{}
	fmt.Fprintf(table, "\n%5s  %-42s %6s %6s %8s %7s %6s\n", "nodes", "", "reads", "loads", "per TTL", "waited", "stale")
	for _, nodes := range []int{1, 8} {
		for _, m := range hotModes {
			var h *hotTally
			synctest.Test(t, func(t *testing.T) { h = readHot(t, nodes, m.open) })
			perTTL := float64(h.loads.Load()) * hotTTL.Seconds() / hotFor.Seconds()
			fmt.Fprintf(table, "%5d  %-42s %6d %6d %8.2f %7d %6d\n", nodes, m.name, h.reads.Load(), h.loads.Load(), perTTL, h.waited.Load(), h.stale.Load())
			if bad := h.waited.Load() + h.stale.Load(); m.name == "levee" && (perTTL > 1.2 || bad*10_000 > h.reads.Load()) {
				t.Errorf("%d nodes: %.2f loads per TTL, %d callers of %d waited or were served stale", nodes, perTTL, bad, h.reads.Load())
			}
		}
	}
	t.Log(table)
}
