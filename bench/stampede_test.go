package bench

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

const (
	nodes    = 8
	callers  = 50 // of each node
	loadTime = 50 * time.Millisecond
	ttl      = 200 * time.Millisecond
)

// BenchmarkStampede is 8 nodes with 50 callers each that ask for one key at the moment when it
// is not, or no longer, fresh. One op is one such moment, with the wait for the next.
func BenchmarkStampede(b *testing.B) {
	b.Run("cold key", func(b *testing.B) {
		f := newFleet(b, cache.Off)
		i := 0
		for b.Loop() {
			f.rush(b, "cold-"+strconv.Itoa(i))
			i++
		}
		f.report(b)
	})
	b.Run("expired key, nothing stale", func(b *testing.B) { expiries(b, cache.Off) })
	b.Run("expired key, stale at hand", func(b *testing.B) { expiries(b, time.Hour) })
}

// expiries lets one key expire again and again.
func expiries(b *testing.B, stale time.Duration) {
	f := newFleet(b, stale)
	f.rush(b, "hot")
	f.settle()
	f.forget()
	for b.Loop() {
		f.rush(b, "hot")
		f.settle()
	}
	f.report(b)
}

// fleet is nodes in front of one database. Each has a connection pool and memory of its own.
type fleet struct {
	nodes []*cache.Cache[string, int64]
	loads atomic.Int64
	now   atomic.Int64 // loads running
	peak  atomic.Int64 // the most of them at once

	rushes int
	waits  []time.Duration
}

func newFleet(b *testing.B, stale time.Duration) *fleet {
	b.Helper()
	f := &fleet{}
	server := redistest.Shared(b)
	for range nodes {
		f.nodes = append(f.nodes, newCache(b, f.load, cache.Options{
			Redis: server.Client(b), Prefix: "stampede", TTL: ttl, TTLJitter: cache.Off,
			StaleWhileRevalidate: stale, StaleIfError: stale,
		}))
	}
	f.rush(b, "warm-up") // connections, scripts, the server's clock
	f.settle()
	f.forget()
	return f
}

func (f *fleet) load(ctx context.Context, _ string) (int64, error) {
	running := f.now.Add(1)
	defer f.now.Add(-1)
	for peak := f.peak.Load(); running > peak && !f.peak.CompareAndSwap(peak, running); peak = f.peak.Load() {
	}
	select {
	case <-time.After(loadTime):
		return f.loads.Add(1), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// rush has all callers of all nodes ask at once, and notes how long each waited.
func (f *fleet) rush(b *testing.B, key string) {
	f.rushes++
	waits := make([]time.Duration, nodes*callers)
	var all sync.WaitGroup
	gate := make(chan struct{})
	for i := range waits {
		all.Go(func() {
			<-gate
			began := time.Now()
			if _, err := f.nodes[i%nodes].Get(b.Context(), key); err != nil {
				b.Error(err)
			}
			waits[i] = time.Since(began)
		})
	}
	close(gate)
	all.Wait()
	f.waits = append(f.waits, waits...)
}

// settle waits until what is being loaded has been stored, and has expired.
func (f *fleet) settle() { pause(loadTime + ttl + ttl/4) }

func (f *fleet) forget() {
	f.loads.Store(0)
	f.peak.Store(0)
	f.rushes, f.waits = 0, nil
}

func (f *fleet) report(b *testing.B) {
	slices.Sort(f.waits)
	at := func(share float64) float64 {
		return float64(f.waits[int(share*float64(len(f.waits)-1))]) / float64(time.Millisecond)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(f.loads.Load())/float64(f.rushes), "loads/expiry")
	b.ReportMetric(float64(f.peak.Load()), "peak-loads")
	b.ReportMetric(at(0.50), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
}
