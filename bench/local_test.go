package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/levee-cache/levee/cache"
)

const manyKeys = 10_000

// alone keeps everything in this process for as long as the benchmark runs.
var alone = cache.Options{TTL: 24 * time.Hour, LocalTTL: 24 * time.Hour}

// texts are n keys of a usual length.
func texts(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("customer-%08d", i)
	}
	return all
}

// zipf draws keys, the first ones most often, as the readers of most services do.
func zipf(keys []string) []string {
	drawn := make([]string, 1<<16)
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(len(keys)-1))
	for i := range drawn {
		drawn[i] = keys[z.Uint64()]
	}
	return drawn
}

// warmLevee is a cache that has all keys in memory.
func warmLevee[K comparable](b *testing.B, keys []K) *cache.Cache[K, user] {
	b.Helper()
	c := newCache(b, instantly[K], alone)
	for range 2 { // ristretto takes new keys in the background
		for _, k := range keys {
			_, err := c.Get(b.Context(), k)
			must(b, err)
		}
		pause(50 * time.Millisecond)
	}
	return c
}

// warmRistretto is ristretto, as it comes, with the same values by the keys' text.
func warmRistretto(b *testing.B, keys []string) *ristretto.Cache[string, user] {
	b.Helper()
	c, err := ristretto.NewCache(&ristretto.Config[string, user]{NumCounters: 1 << 20, MaxCost: 64 << 20, BufferItems: 64})
	must(b, err)
	b.Cleanup(c.Close)
	for _, k := range keys {
		c.Set(k, userOf(7), 500)
		c.Wait()
	}
	return c
}

// reads are the two to be compared: each reads the i-th key.
func reads[K comparable](b *testing.B, keys []K, texts []string) (levee, bare func(i int)) {
	b.Helper()
	c, r := warmLevee(b, keys), warmRistretto(b, texts)
	ctx := b.Context()
	levee = func(i int) {
		if u, err := c.Get(ctx, keys[i%len(keys)]); err != nil || u.ID != 7 {
			b.Errorf("got %v, %v", u, err)
		}
	}
	bare = func(i int) {
		if u, ok := r.Get(texts[i%len(texts)]); !ok || u.ID != 7 {
			b.Errorf("got %v, %t", u, ok)
		}
	}
	return levee, bare
}

// BenchmarkLocalHit is a value served from memory, and beside it a bare ristretto.Get by the
// key's text.
func BenchmarkLocalHit(b *testing.B) {
	keys := texts(manyKeys)
	ids := make([]int64, manyKeys)
	for i := range ids {
		ids[i] = int64(i) * 1_000_003
	}
	b.Run("one hot string key", func(b *testing.B) { compare(b, keys[:1], keys[:1]) })
	b.Run("one hot int64 key", func(b *testing.B) { compare(b, ids[:1], keys[:1]) })
	drawn := zipf(keys)
	b.Run("10,000 string keys, Zipf", func(b *testing.B) { compare(b, drawn, drawn) })
	b.Run("10,000 string keys, in turn", func(b *testing.B) { compare(b, keys, keys) })
}

func compare[K comparable](b *testing.B, keys []K, texts []string) {
	levee, bare := reads(b, keys, texts)
	b.Run("levee", func(b *testing.B) { serially(b, levee) })
	b.Run("ristretto", func(b *testing.B) { serially(b, bare) })
	b.Run("levee, all cores", func(b *testing.B) { parallel(b, levee) })
	b.Run("ristretto, all cores", func(b *testing.B) { parallel(b, bare) })
	b.Run("ratio", func(b *testing.B) { ratio(b, levee, bare) })
}

func serially(b *testing.B, read func(int)) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		read(i)
		i++
	}
}

func parallel(b *testing.B, read func(int)) {
	b.ReportAllocs()
	var readers atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		i := int(readers.Add(1)) * 1000
		for pb.Next() {
			read(i)
			i++
		}
	})
}

// ratio reads in turns, a thousand times each, so that what else the machine does hits both
// alike, and reports the quotient of the medians.
func ratio(b *testing.B, levee, bare func(int)) {
	var times [2][]time.Duration
	turn := 0
	for b.Loop() {
		for which, read := range []func(int){levee, bare} {
			began := time.Now()
			for i := range 1000 {
				read(turn + i + which<<15) // not the keys that the other has just brought into the processor's cache
			}
			times[which] = append(times[which], time.Since(began))
		}
		turn += 1000
	}
	l, r := median(times[0]), median(times[1])
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(l)/1000, "levee-ns")
	b.ReportMetric(float64(r)/1000, "ristretto-ns")
	b.ReportMetric(float64(l)/float64(r), "levee/ristretto")
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkStaleHit is a value served at once while its refresh is under way.
func BenchmarkStaleHit(b *testing.B) {
	refreshing := make(chan struct{})
	var loads atomic.Int64
	load := func(ctx context.Context, _ string) (user, error) {
		if loads.Add(1) == 1 {
			return userOf(7), nil
		}
		close(refreshing) // there is one at a time
		<-ctx.Done()
		return user{}, ctx.Err()
	}
	c := newCache(b, load, cache.Options{TTL: time.Millisecond, StaleWhileRevalidate: time.Hour, LoadTimeout: time.Hour})
	_, err := c.Get(b.Context(), "customer")
	must(b, err)
	pause(50 * time.Millisecond)
	read := func(int) {
		if u, err := c.Get(b.Context(), "customer"); err != nil || u.ID != 7 {
			b.Errorf("got %v, %v", u, err)
		}
	}
	read(0)
	<-refreshing
	b.Run("serial", func(b *testing.B) { serially(b, read) })
	b.Run("all cores", func(b *testing.B) { parallel(b, read) })
	if served := c.Stats().Stale; served == 0 || loads.Load() != 2 {
		b.Errorf("%d stale hits, %d loads", served, loads.Load())
	}
}
