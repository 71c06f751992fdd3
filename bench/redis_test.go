package bench

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// BenchmarkRemoteHit is a value that only Redis has.
func BenchmarkRemoteHit(b *testing.B) {
	for _, size := range []struct {
		situation string
		bytes     int
	}{{"100 bytes", 100}, {"10 KiB", 10 << 10}} {
		b.Run(size.situation, func(b *testing.B) {
			client := redistest.Shared(b).Client(b)
			value := strings.Repeat("x", size.bytes)
			load := func(context.Context, string) (string, error) { return value, nil }
			c := newCache(b, load, cache.Options{Redis: client, TTL: time.Hour, LocalMaxBytes: cache.Off})
			get(b, c, "customer")
			get(b, c, "customer") // learns the server's clock
			b.Run("levee", func(b *testing.B) {
				b.ReportAllocs()
				sent := countTrips(client)
				for b.Loop() {
					if e := get(b, c, "customer"); e.Source != cache.SourceRemote {
						b.Fatalf("served from %v", e.Source)
					}
				}
				sent.report(b)
			})
			b.Run("bare GET", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					must(b, client.Get(b.Context(), c.RedisKey("customer")).Err())
				}
			})
		})
	}
}

// BenchmarkColdMiss is a key that nobody has, and a loader that takes no time: GET, lease, load,
// commit.
func BenchmarkColdMiss(b *testing.B) {
	b.Run("with Redis", func(b *testing.B) { miss(b, redistest.Shared(b).Client(b)) })
	b.Run("without Redis", func(b *testing.B) { miss(b, nil) })
}

// miss asks for one new key after the other.
func miss(b *testing.B, client *redis.Client) {
	o := cache.Options{TTL: time.Hour}
	if client != nil {
		o.Redis = client
	}
	c := newCache(b, instantly[string], o)
	for i := range 10 { // connections, scripts, the server's clock
		get(b, c, "warm-up-"+strconv.Itoa(i))
	}
	if client != nil {
		defer countTrips(client).report(b)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if e := get(b, c, strconv.Itoa(i)); e.Source != cache.SourceLoaded {
			b.Fatalf("served from %v", e.Source)
		}
		i++
	}
}

func get[V any](b *testing.B, c *cache.Cache[string, V], key string) cache.Entry[V] {
	e, err := c.GetEntry(b.Context(), key)
	must(b, err)
	return e
}
