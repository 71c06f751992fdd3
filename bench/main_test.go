package bench

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(redistest.Main(m, nil))
}

// user is a value of the usual kind.
type user struct {
	ID    int64
	Name  string
	Email string
	Tags  []string
}

func userOf(id int64) user {
	return user{id, "Ada Lovelace", "ada@example.org", []string{"admin", "beta"}}
}

// instantly loads a user without delay.
func instantly[K comparable](context.Context, K) (user, error) { return userOf(7), nil }

// newCache makes a cache that is closed when the benchmark ends.
func newCache[K comparable, V any](b *testing.B, load func(context.Context, K) (V, error), o cache.Options) *cache.Cache[K, V] {
	b.Helper()
	c, err := cache.New("bench", loader.Func(load), o)
	must(b, err)
	b.Cleanup(func() { must(b, c.Close()) })
	return c
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// trips is a hook that counts what a client sends, a pipeline as one.
type trips struct{ n atomic.Int64 }

// countTrips counts those of c from now on.
func countTrips(c redis.UniversalClient) *trips {
	t := &trips{}
	c.AddHook(t)
	return t
}

// report says how many there were for each op.
func (t *trips) report(b *testing.B) {
	b.ReportMetric(float64(t.n.Load())/float64(b.N), "round-trips/op")
}

func (t *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (t *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmds)
	}
}

// pause lets real time pass.
func pause(d time.Duration) { <-time.After(d) }
