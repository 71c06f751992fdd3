package bench

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// row is what eight nodes hold copies of: its version is written, and then deleted on node 0.
type row struct{ version, loads atomic.Int64 }

func (r *row) load(context.Context, string) (int64, error) {
	r.loads.Add(1)
	return r.version.Load(), nil
}

// listener is a wire on which messages can be cut off: that of the reader, which is known by what it asks.
type listener struct {
	net.Conn
	cut *atomic.Bool
}

func (l listener) Write(p []byte) (int, error) {
	if l.cut.Load() && strings.Contains(string(p), "xre") { // XREAD, XREVRANGE
		_ = l.Close()
		return 0, net.ErrClosed
	}
	return l.Conn.Write(p)
}

func (l listener) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if err == nil && l.cut.Load() && strings.Contains(string(p[:n]), "levee1:!messages") {
		_ = l.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

// eightNodes are caches on a real server, whose streams can be cut.
func eightNodes(t *testing.T, r *row) (nodes []*cache.Cache[string, int64], cut *atomic.Bool) {
	s := redistest.Shared(t)
	cut = &atomic.Bool{}
	for range 8 {
		client := s.Client(t, func(o *redis.Options) {
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				return listener{conn, cut}, err
			}
		})
		o := cache.Options{Redis: client, TTL: time.Hour, LocalTTL: time.Hour, LocalMaxBytes: 4 << 20, RedisTimeout: 5 * time.Second}
		c, err := cache.New("delete", loader.Func(r.load), o)
		must(t, err)
		t.Cleanup(func() { must(t, c.Close()) })
		nodes = append(nodes, c)
	}
	return nodes, cut
}

// warm has every node hold a copy of keys.
func warm(t *testing.T, nodes []*cache.Cache[string, int64], keys ...string) {
	t.Helper()
	for _, n := range nodes {
		for _, key := range keys {
			_, err := n.Get(t.Context(), key)
			must(t, err)
		}
	}
}

// gone deletes key on node 0, after a new version was written, and measures how long after the begin of the call
// a Get of each of the others began that did not return the old one any more. It looks every 0.2 ms, for no more than
// long.
func (r *row) gone(t *testing.T, nodes []*cache.Cache[string, int64], key string, long time.Duration) (returned time.Duration, served []time.Duration) {
	t.Helper()
	version := r.version.Add(1)
	served = make([]time.Duration, len(nodes)-1)
	var ready, watching sync.WaitGroup
	var began time.Time
	begin := make(chan struct{})
	for i, n := range nodes[1:] {
		ready.Add(1)
		watching.Go(func() {
			ready.Done()
			<-begin
			for served[i] < long {
				v, err := n.Get(t.Context(), key)
				if err != nil || v >= version {
					return
				}
				pause(200 * time.Microsecond)
				served[i] = time.Since(began)
			}
		})
	}
	ready.Wait()
	began = time.Now()
	close(begin)
	if err := nodes[0].Delete(t.Context(), key); err != nil {
		t.Error(err)
	}
	returned = time.Since(began)
	watching.Wait()
	return returned, served
}

// percentile is of sorted durations.
func percentile(all []time.Duration, p float64) time.Duration {
	return all[min(int(float64(len(all))*p), len(all)-1)].Round(10 * time.Microsecond)
}

// With -v it prints how long the other nodes serve what one has deleted. The figure that is aimed at is 20 ms at
// the 99th percentile; a machine that is busy with other things takes longer, so only the second is asserted
// within which they know by themselves.
func TestADeletedValueIsGoneFromAllNodes(t *testing.T) {
	r := &row{}
	nodes, _ := eightNodes(t, r)
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	var returned, each, all []time.Duration
	for round := range rounds {
		key := fmt.Sprint("k", round)
		warm(t, nodes, key)
		call, served := r.gone(t, nodes, key, 2*time.Second)
		returned, each, all = append(returned, call), append(each, served...), append(all, slices.Max(served))
	}
	table := &strings.Builder{}
	fmt.Fprintf(table, "\n%d deletes, 7 other nodes with a copy; from the begin of Delete\n%-34s %10s %10s %10s\n", rounds, "", "p50", "p99", "max")
	for _, line := range []struct {
		name string
		all  []time.Duration
	}{{"Delete returns", returned}, {"gone from a node", each}, {"gone from all nodes", all}} {
		slices.Sort(line.all)
		fmt.Fprintf(table, "%-34s %10v %10v %10v\n", line.name, percentile(line.all, 0.5), percentile(line.all, 0.99), percentile(line.all, 1))
	}
	t.Log(table)
	if last := all[len(all)-1]; last > time.Second {
		t.Errorf("an old value was served for %v", last)
	}
}

// The same with the stream cut: then a copy is believed for a second at most. After the reconnect nothing old comes
// back, and what had not been deleted is verified and not loaded.
func TestADeletedValueIsGoneThoughTheStreamIsCut(t *testing.T) {
	r := &row{}
	nodes, cut := eightNodes(t, r)
	var others []string
	for i := range 200 {
		others = append(others, fmt.Sprint("other", i))
	}
	keys := []string{"a", "b", "c", "d"}
	warm(t, nodes, append(others, keys...)...)
	loads := r.loads.Load()
	pause(time.Second) // now all hear

	cut.Store(true)
	var mu sync.Mutex // guards each
	var each []time.Duration
	var deletes sync.WaitGroup
	for _, key := range keys {
		deletes.Go(func() {
			_, served := r.gone(t, nodes, key, 3*time.Second)
			mu.Lock()
			defer mu.Unlock()
			each = append(each, served...)
		})
	}
	deletes.Wait()
	cut.Store(false)
	version := r.version.Load()
	pause(2 * time.Second) // it has come back
	for _, n := range nodes {
		for _, key := range keys {
			if v, err := n.Get(t.Context(), key); err != nil || v < version-int64(len(keys))+1 {
				t.Errorf("got version %d, %v of a key that was deleted during the cut", v, err)
			}
		}
	}
	warm(t, nodes, others...)
	again := r.loads.Load() - loads - int64(len(keys))
	slices.Sort(each)
	t.Logf("stream cut: gone from a node after p50 %v, max %v; loads of what was not deleted, after the reconnect: %d",
		percentile(each, 0.5), percentile(each, 1), again)
	if last := each[len(each)-1]; last > 1500*time.Millisecond || again != 0 {
		t.Errorf("an old value was served for %v, and %d values were loaded again", last, again)
	}
}
