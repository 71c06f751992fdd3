package cache_test

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
)

// The case's refresh limit, 64, is a quarter of MaxConcurrentLoads. The case has 100,000 keys, as
// the soak does; the ordinary run has some thousands, and fewer still with Redis, where each read
// of a stale key asks it. They come by Set, not by loads.
func TestB102_AFloodOfStaleKeysIsRefreshedByAQuarterOfTheSlots(t *testing.T) {
	for shared, keys := range map[bool]int{false: soak(4_000, 100_000), true: soak(250, 100_000)} {
		t.Run(fmt.Sprint("with Redis: ", shared), func(t *testing.T) {
			o := settings()
			o.TTL, o.StaleWhileRevalidate, o.EarlyRefresh = time.Minute, time.Hour, 0
			o.MaxConcurrentLoads, o.LocalMaxBytes = 256, 64<<20
			inBubble(t, 0, o, func(t *testing.T, f *fleet) {
				if shared {
					f.grow(1)
					f.flood(t, f.nodes[0], keys)
				} else {
					f.flood(t, local(t, f.source, o), keys)
				}
			})
		})
	}
}

// flood is one run of B102, in a bubble.
func (f *fleet) flood(t *testing.T, n *node, keys int) {
	var running, most atomic.Int64
	f.query = func(ctx context.Context, _ string, _ int) error {
		raise(&most, running.Add(1))
		defer running.Add(-1)
		return pass(ctx, time.Second)
	}
	for i := range keys {
		must(t, n.Set(t.Context(), strconv.Itoa(i), value(strconv.Itoa(i), 1)))
		if i%1000 == 0 {
			synctest.Wait() // so that the local tier is not given too many at once
		}
	}
	time.Sleep(time.Minute + time.Second)
	must(t, n.Set(t.Context(), "the clock is known", "")) // with Redis
	held, goroutines := heap(), runtime.NumGoroutine()

	f.readAll(t, n, keys, func() {
		equal(t, "refreshes at once", running.Load(), 64)
		grown := heap() - held
		t.Logf("the heap has grown by %d bytes, %d keys", grown, keys)
		if grown > 2<<20 {
			t.Errorf("the heap has grown by %d bytes", grown)
		}
		if grown := runtime.NumGoroutine() - goroutines; grown > 64*5 {
			t.Errorf("%d goroutines more than before", grown)
		}
		cold := start(t.Context(), 1, "cold", n)
		synctest.Wait()
		equal(t, "loads with a foreground one", running.Load(), 65)
		allGet(t, cold.wait(), value("cold", 1), time.Second)
	})
	equal(t, "most loads at once", most.Load(), 65)
	first := n.Stats()
	if first.Dropped == 0 {
		t.Error("nothing was dropped")
	}
	time.Sleep(time.Second)
	equal(t, "refreshes under way", running.Load(), 0)
	f.readAll(t, n, keys, func() {}) // the rest try later
	second := n.Stats()
	if more := second.StaleRefreshes - first.StaleRefreshes; more < 64 || more > 128 {
		t.Errorf("%d refreshes in the second that followed, want 64 at a time", more)
	}
	time.Sleep(2 * time.Second)
	equal(t, "most loads at once", most.Load() <= 65, true)
	equal(t, "failures", n.Stats().Failures, 0)
}

// raise makes m at least v.
func raise(m *atomic.Int64, v int64) {
	for old := m.Load(); v > old && !m.CompareAndSwap(old, v); old = m.Load() {
	}
}

// readAll reads each key once within a second, in a bubble, and calls halfway once.
func (f *fleet) readAll(t *testing.T, n *node, keys int, halfway func()) {
	t.Helper()
	for i := range keys {
		key, asked := strconv.Itoa(i), time.Now()
		e, err := n.GetEntry(t.Context(), key)
		if err != nil || e.Value != value(key, 1) || time.Since(asked) > 0 {
			t.Fatalf("key %s: got %+v, %v after %v", key, e, err, time.Since(asked))
		}
		if i == keys/2 {
			halfway()
		}
		time.Sleep(time.Second / time.Duration(keys))
	}
}

// The case has 10 nodes with 100 callers each, of one key and then of 200: the ordinary run has
// fewer keys and callers of them. The first round is a cold start, the second follows a flush of
// Redis, when no copy in memory is believed any more.
func TestB49_ColdKeysLoadOnceInTheWholeFleet(t *testing.T) {
	for _, tc := range []struct{ keys, callers int }{
		{1, 100},
		{soak(8, 200), soak(10, 100)},
	} {
		t.Run(fmt.Sprint(tc.keys, " keys"), func(t *testing.T) {
			o := settings()
			o.EarlyRefresh = 0
			inBubble(t, 10, o, func(t *testing.T, f *fleet) {
				f.query = takes(300 * time.Millisecond)
				for round := range 2 {
					var asking []*calls
					for i := range tc.keys {
						asking = append(asking, start(t.Context(), tc.callers*len(f.nodes), strconv.Itoa(i), f.nodes...))
					}
					for i, c := range asking {
						for _, g := range c.wait() {
							if g.err != nil || g.value != value(strconv.Itoa(i), 1) {
								t.Fatalf("got %q, %v", g.value, g.err)
							}
							within(t, "a caller", g.took, time.Second)
						}
						equal(t, "loads of a key", f.queries(strconv.Itoa(i)), 1+round)
					}
					f.mini.Mini().FlushAll()
					time.Sleep(2 * time.Second) // LocalTTL
				}
				equal(t, "loads at once", f.peak(), 1)
			})
		})
	}
}

// narrow is a link with so many bytes a second in each direction, for all connections together:
// they take turns by packets. It is for use in a bubble.
type narrow struct {
	perSecond int
	mu        sync.Mutex   // guards free
	free      [2]time.Time // up and down
}

const (
	packet = 16 << 10
	up     = 0
	down   = 1
)

// carry lets bytes pass in a direction, in a bubble.
func (l *narrow) carry(way, bytes int) {
	l.mu.Lock()
	now := time.Now()
	if l.free[way].Before(now) {
		l.free[way] = now
	}
	l.free[way] = l.free[way].Add(time.Duration(bytes) * time.Second / time.Duration(l.perSecond))
	wait := l.free[way].Sub(now)
	l.mu.Unlock()
	time.Sleep(wait)
}

// options makes a client's connections go over the link.
func (l *narrow) options(o *redis.Options) {
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &narrowConn{Conn: c, link: l}, nil
	}
}

// narrowConn goes over the link from its first read or script on: go-redis sets connections up, and
// subscribes, under locks, and who waits for a lock holds up the bubble's clock.
type narrowConn struct {
	net.Conn
	link *narrow
	pays atomic.Bool
}

func (c *narrowConn) Write(p []byte) (n int, err error) {
	if !c.pays.Load() {
		head := string(p[:min(len(p), 64)])
		c.pays.Store(strings.Contains(head, "eval") || strings.Contains(head, "get"))
	}
	for len(p) > 0 && err == nil {
		m := min(len(p), packet)
		c.carry(up, m)
		m, err = c.Conn.Write(p[:m])
		n, p = n+m, p[m:]
	}
	return n, err
}

func (c *narrowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), packet)])
	c.carry(down, n)
	return n, err
}

func (c *narrowConn) carry(way, bytes int) {
	if c.pays.Load() {
		c.link.carry(way, bytes)
	}
}

const megabyte = 1 << 20

// warehouse has values of as many megabytes as the key says, and small ones.
type warehouse struct{ loads atomic.Int64 } // of big ones

func (w *warehouse) load(ctx context.Context, key string) (string, error) {
	size, unit, _ := strings.Cut(key, " ")
	if unit != "MB" {
		return "small", pass(ctx, 20*time.Millisecond)
	}
	w.loads.Add(1)
	n, err := strconv.Atoi(size)
	if err == nil {
		err = pass(ctx, time.Second)
	}
	return strings.Repeat("x", n*megabyte), err
}

// The 64 MB come in the soak only. All nodes share one link of 100 Mbit to a server in the bubble.
// The small keys are read from Redis each time, which is what the big ones could slow down. A load
// of a big one takes a second. Those over the limit are loaded once a node at the most: the first
// load tells the other nodes not to wait for it, and they load beside each other.
func TestB105_BigValuesSlowNothingDown(t *testing.T) {
	o := settings()
	o.EarlyRefresh, o.MaxValueBytes, o.RedisTimeout = 0, 4*megabyte, 0
	inBubble(t, 0, o, func(t *testing.T, f *fleet) {
		link := &narrow{perSecond: 100_000_000 / 8}
		w := &warehouse{}
		for range 3 {
			client := f.mini.Link().Client(t, roomy, link.options)
			f.joinWith(loader.Func(w.load), client, o)
		}
		tapes := f.taped()
		small := func(d time.Duration) []timed { return f.smallReads(t, 500, d) }
		small(time.Second) // warms the connections
		quiet := percentile(small(2*time.Second), 0.99, 0)
		sizes := []int{1, 8}
		if soak(0, 1) == 1 {
			sizes = append(sizes, 64)
		}
		for _, size := range sizes {
			f.oneBig(t, w, tapes, size, quiet, small)
		}
		time.Sleep(11 * time.Second)
		f.oneBig(t, w, tapes, 1, quiet, small) // while the old one stands in Redis, and could be read by polls
		equal(t, "calls without Redis", f.sum(func(s cache.Stats) int64 { return s.RedisErrors }), 0)
		for _, key := range f.keys() {
			size := f.probe.StrLen(t.Context(), key).Val()
			if size > bodyEnd+64 && key != f.nodes[0].RedisKey("1 MB") {
				t.Errorf("%q has grown to %d bytes", key, size)
			}
		}
	})
}

// oneBig has 100 callers wait for a big value, while small ones are read. It runs in a bubble.
func (f *fleet) oneBig(t *testing.T, w *warehouse, tapes []*tape, size int, quiet time.Duration, small func(time.Duration) []timed) {
	t.Helper()
	unstorable, above := f.sum(func(s cache.Stats) int64 { return s.Unstorable }), make([]int, len(tapes))
	loads := w.loads.Load()
	for i, p := range tapes {
		above[i] = p.above(size * megabyte)
	}
	var running sync.WaitGroup
	var slowest atomic.Int64
	for i := range 100 {
		running.Go(func() {
			asked := time.Now()
			v, err := f.nodes[i%len(f.nodes)].Get(t.Context(), fmt.Sprint(size, " MB"), cache.Fresh())
			raise(&slowest, int64(time.Since(asked)))
			if err != nil || len(v) != size*megabyte {
				t.Errorf("a caller got %d bytes, %v", len(v), err)
			}
		})
	}
	slow := percentile(small(2*time.Second), 0.99, 0)
	running.Wait()
	within(t, "the slowest caller of a big value", time.Duration(slowest.Load()), 2*time.Second+300*time.Millisecond)
	within(t, "99 of 100 reads of small values", slow, quiet+50*time.Millisecond)
	t.Logf("%d MB: the 99th percentile of small reads is %v, without %v", size, slow, quiet)

	stored := size*megabyte <= f.options.MaxValueBytes
	most, wanted := 1, int64(1) // reads of the whole value by a node, and loads
	if took := time.Duration(slowest.Load()); stored && took < time.Second+80*time.Millisecond {
		t.Errorf("all had the value after %v: the link is not narrow", took)
	}
	if !stored {
		most, wanted = 0, int64(len(f.nodes)) // at most one a node
	}
	for i, p := range tapes {
		if n := p.above(size*megabyte) - above[i]; n > most {
			t.Errorf("node %d has read the value of %d MB %d times", i, size, n)
		}
	}
	if n := w.loads.Load() - loads; n > wanted {
		t.Errorf("%d loads of %d MB, want %d at most", n, size, wanted)
	}
	equal(t, "counted as not stored", f.sum(func(s cache.Stats) int64 { return s.Unstorable }) > unstorable, !stored)
}

// smallReads reads ten small keys from Redis so many times a second for d, on the nodes in turn, in
// a bubble.
func (f *fleet) smallReads(t *testing.T, perSecond int, d time.Duration) []timed {
	t.Helper()
	all := make([]timed, int(d/time.Second*time.Duration(perSecond)))
	began := time.Now()
	var running sync.WaitGroup
	for i := range all {
		n, key := f.nodes[i%len(f.nodes)], "small "+strconv.Itoa(i%10)
		running.Go(func() {
			asked := time.Now()
			v, err := n.Get(t.Context(), key, cache.SkipLocal())
			all[i] = timed{asked.Sub(began), got{n, v, err, time.Since(asked)}}
			if v != "small" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
		})
		time.Sleep(time.Second / time.Duration(perSecond))
	}
	running.Wait()
	return all
}
