package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// atLength is the full length under LEVEE_SOAK=1, and else the short one.
func atLength(short, full int) int {
	if os.Getenv("LEVEE_SOAK") == "1" {
		return full
	}
	return short
}

// live is what the heap holds after a collection.
func live() int64 {
	runtime.GC()
	runtime.GC() // what pools and finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

const (
	localLimit = 4 << 20
	overLimit  = 10 << 20
)

// sizes are values' sizes, in bytes.
var sizes = []struct {
	name string
	of   func(key int) int
}{
	{"10 B", func(int) int { return 10 }},
	{"1 KB", func(int) int { return 1 << 10 }},
	{"100 KB", func(int) int { return 100 << 10 }},
	{"10 MB", func(int) int { return overLimit }},
	{"a random mix", func(key int) int {
		if key%1000 == 999 {
			return overLimit
		}
		return []int{10, 1 << 10, 1 << 10, 10, 100 << 10}[rand.IntN(5)]
	}},
}

// Right: the heap of the local tier is 1.5 times the limit at most, whatever the values' size,
// also with values over the limit. They come by Set, which takes the way of a load to the tier
// in a fraction of the time.
func TestB99_TheHeapOfTheLocalTierStaysNearItsLimit(t *testing.T) {
	for _, size := range sizes {
		t.Run(size.name, func(t *testing.T) {
			before := live()
			o := Options{TTL: time.Hour, LocalMaxBytes: localLimit, MaxValueBytes: 2 * overLimit}
			c := newCache(t, "b99", always[int]([]byte{}), o)
			highest, kept := int64(0), int64(0)
			const step = localLimit / 2
			for key, next := 0, int64(step); kept < int64(atLength(2, 300))*localLimit; key++ {
				v := make([]byte, size.of(key))
				must(t, c.Set(t.Context(), key, v))
				if kept += int64(min(len(v), localLimit/2)) + overhead; kept >= next {
					highest, next = max(highest, live()-before), kept+step
				}
			}
			if highest > localLimit*3/2 {
				t.Errorf("the heap has grown by %d KB, the limit is %d KB", highest>>10, localLimit>>10)
			}
			t.Logf("the heap grew by %d KB at most, %.2f of the limit", highest>>10, float64(highest)/localLimit)
		})
	}
}

// Right: an item over the limit is refused and counted: as Unstorable if it is over MaxValueBytes,
// as LocalRefused if only the local tier has no room for it.
func TestB99_AValueOverALimitIsReturnedAndNotHeld(t *testing.T) {
	for _, tc := range []struct {
		name    string
		most    int
		counted func(Stats) int64
	}{
		{"over MaxValueBytes", 0, func(s Stats) int64 { return s.Unstorable }},
		{"over LocalMaxBytes only", 2 * overLimit, func(s Stats) int64 { return s.LocalRefused }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			size, loads := 10, 0
			l := loader.Func(func(context.Context, string) ([]byte, error) {
				loads++
				return make([]byte, size), nil
			})
			c := newCache(t, "b99", l, Options{TTL: time.Hour, LocalMaxBytes: localLimit, MaxValueBytes: tc.most})
			_, err := c.Get(t.Context(), "small")
			must(t, err)
			before := live()
			size = overLimit
			for range 3 {
				v, err := c.Get(t.Context(), "large")
				must(t, err)
				equal(t, "size", len(v), overLimit)
			}
			equal(t, "loads", loads, 1+3)
			c.local.tier.Wait()
			equal(t, "counted", tc.counted(c.Stats()), 3)
			if grown := live() - before; grown > localLimit/4 {
				t.Errorf("%d KB are held", grown>>10)
			}
			e, err := c.GetEntry(t.Context(), "small")
			must(t, err)
			equal(t, "the small one is still there", e.Source, SourceLocal)
		})
	}
}

// zipf draws keys with a chance of 1/rank^s, and knows the share of the first n.
type zipf struct{ sums []float64 }

func newZipf(s float64, keys int) zipf {
	z := zipf{make([]float64, keys+1)}
	for i := range keys {
		z.sums[i+1] = z.sums[i] + math.Pow(float64(i+1), -s)
	}
	return z
}

func (z zipf) first(n int) float64 { return z.sums[min(n, len(z.sums)-1)] / z.sums[len(z.sums)-1] }

func (z zipf) draw(r *rand.Rand) int {
	x := r.Float64() * z.sums[len(z.sums)-1]
	low, high := 0, len(z.sums)-1
	for low+1 < high {
		if mid := (low + high) / 2; z.sums[mid] <= x {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// Right: the hit share on a Zipf load is near the ideal, which is to hold the most popular keys
// that fit and nothing else. It is the tier alone, without what a load costs beside it.
func TestB99_TheHitShareOfAZipfLoadIsNearTheIdeal(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector sync.Pool forgets, and with it ristretto what is popular")
	}
	for _, s := range []float64{0.8, 1, 1.2} {
		t.Run(fmt.Sprint("s = ", s), func(t *testing.T) {
			const keys, size = 50_000, 600
			z, r, l := newZipf(s, keys), rand.New(rand.NewPCG(1, 2)), tierOf[int](t, localLimit)
			rounds, hits := atLength(500_000, 20_000_000), 0
			for i := range rounds {
				h := heldAs(strconv.Itoa(z.draw(r)), i)
				switch {
				case l.lookup(h.hash, h.text, link.Instant(r.Int64())) == nil:
					h.size = size
					l.keep(h)
				case i >= rounds/2: // it has learnt what is popular
					hits++
				}
			}
			got, ideal := float64(hits)/float64(rounds/2), z.first(localLimit/(size+overhead))
			t.Logf("hit share %.3f, ideal %.3f", got, ideal)
			if got < 0.8*ideal || got > 1.02*ideal {
				t.Errorf("hit share %.3f, ideal %.3f", got, ideal)
			}
		})
	}
}

// A Set, or a Delete, is no reason to load other keys again: whatever it does to the tier, their
// copies are as good as before. Without Redis there is nothing else to fetch them from.
func TestB99_ASetOfOneKeyCostsNoLoadOfAnother(t *testing.T) {
	const keys, writes = 1000, 300
	var loads atomic.Int64
	l := loader.Func(func(_ context.Context, key int) (int, error) { loads.Add(1); return key, nil })
	c := newCache(t, "b99", l, Options{TTL: time.Hour, LocalMaxBytes: localLimit})
	readAll := func() {
		for key := range keys {
			_, err := c.Get(t.Context(), key)
			must(t, err)
		}
	}
	readAll()
	readAll()
	equal(t, "loads before", int(loads.Load()), keys)
	for key := range writes {
		must(t, c.Set(t.Context(), keys+key, 1))
	}
	readAll()
	equal(t, "loads of other keys after the writes", int(loads.Load())-keys, 0)
}

// ledger counts what stands in the maps of a node and its link, by their path. It reads fields that
// this package cannot see, each under the mutexes that lie beside it.
type ledger struct {
	seen    map[unsafe.Pointer]bool
	records map[string]int
}

// records are those of a cache, but for what ristretto holds.
func records[K comparable, V any](c *Cache[K, V]) map[string]int {
	l := ledger{map[unsafe.Pointer]bool{}, map[string]int{}}
	l.visit("cache", reflect.ValueOf(c))
	return l.records
}

// ours tells whether per-key records may hang on a type: also the children of a context and the
// calls of singleflight do.
func ours(t reflect.Type) bool {
	return strings.HasPrefix(t.PkgPath(), "github.com/levee-cache/levee") || t.PkgPath() == "context" ||
		t.PkgPath() == "golang.org/x/sync/singleflight"
}

func (l ledger) visit(path string, v reflect.Value) {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		if v.IsNil() || v.Kind() == reflect.Pointer && l.seen[v.UnsafePointer()] {
			return
		}
		if v.Kind() == reflect.Pointer {
			l.seen[v.UnsafePointer()] = true
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct || !ours(v.Type()) {
		return
	}
	type child struct {
		path string
		v    reflect.Value
	}
	var inside []child
	unlock := lockAll(v)
	for field, f := range v.Fields() {
		name := path + "." + field.Name
		switch {
		case f.Kind() == reflect.Map:
			l.records[name] += f.Len()
		case f.Kind() == reflect.Struct:
			inside = append(inside, child{name, f})
		case f.Kind() == reflect.Interface && !f.IsNil():
			inside = append(inside, child{name, f.Elem()})
		case f.Kind() == reflect.Pointer && !f.IsNil():
			inside = append(inside, child{name, f.Elem().Addr()}) // read under the mutex
		}
	}
	unlock()
	for _, c := range inside {
		l.visit(c.path, c.v)
	}
}

// lockAll locks the mutexes of a struct.
func lockAll(v reflect.Value) (unlock func()) {
	var held []*sync.Mutex
	for _, f := range v.Fields() {
		if f.Type() == reflect.TypeFor[sync.Mutex]() && f.CanAddr() {
			mu := (*sync.Mutex)(unsafe.Pointer(f.UnsafeAddr()))
			mu.Lock()
			held = append(held, mu)
		}
	}
	return func() {
		for _, mu := range held {
			mu.Unlock()
		}
	}
}

// left are the records of keys that a cache holds: all but those of its server and its name, and
// the one copy that ristretto took last (see queued).
func left[K comparable, V any](c *Cache[K, V]) map[string]int {
	all := records(c)
	maps.DeleteFunc(all, func(path string, n int) bool {
		return n == 0 || n == 1 && (strings.HasSuffix(path, ".offsets") || strings.HasSuffix(path, ".taken") ||
			strings.HasSuffix(path, ".queued.last") || strings.HasSuffix(path, ".streams.open"))
	})
	return all
}

// forgets waits until no cache holds a record of any key.
func forgets[K comparable, V any](t *testing.T, caches []*Cache[K, V]) {
	t.Helper()
	var last map[string]int
	redistest.Eventually(t, 5*time.Second, func() bool {
		last = map[string]int{}
		for _, c := range caches {
			maps.Copy(last, left(c))
		}
		return len(last) == 0
	}, "no record of a key is left, but ", &last)
}

var errDown = errors.New("no route to the database")

// outcome lets a third of all keys fail, and a third be absent.
func outcome(key int) error { return []error{nil, errDown, ErrNotFound}[key%3] }

// inTiers runs body with two nodes on one Redis, and with one node without.
func inTiers(t *testing.T, body func(t *testing.T, open func(loader.Loader[int, int], Options) []*Cache[int, int])) {
	t.Run("without Redis", func(t *testing.T) {
		body(t, func(l loader.Loader[int, int], o Options) []*Cache[int, int] {
			return []*Cache[int, int]{newCache(t, "b100", l, o)}
		})
	})
	t.Run("with Redis", func(t *testing.T) {
		server := redistest.Shared(t)
		body(t, func(l loader.Loader[int, int], o Options) (all []*Cache[int, int]) {
			o.RedisTimeout = 5 * time.Second
			for range 2 {
				o.Redis = server.Client(t)
				all = append(all, newCache(t, "b100", l, o))
			}
			return all
		})
	})
}

// ask asks for a key and checks the outcome.
func ask(t *testing.T, c *Cache[int, int], key int) {
	v, err := c.Get(t.Context(), key)
	ok := errors.Is(err, outcome(key))
	if e, refused := errors.AsType[*BackoffError](err); refused && outcome(key) == errDown {
		ok = e.Message == errDown.Error()
	}
	if !ok || err == nil && v != key {
		t.Errorf("key %d: got %d, %v", key, v, err)
	}
}

// Right: internal maps are empty, and the heap is near the base and the limit of the local tier.
// The back-off is short so that failures are forgotten within the test: they outlive it.
func TestB100_NoRecordOfAKeyOutlivesIt(t *testing.T) {
	inTiers(t, func(t *testing.T, open func(loader.Loader[int, int], Options) []*Cache[int, int]) {
		hold, held := make(chan struct{}), make(chan struct{})
		l := loader.Func(func(_ context.Context, key int) (int, error) {
			if key == 0 {
				close(held)
				<-hold
			}
			return key, outcome(key)
		})
		all := open(l, Options{TTL: time.Second, TTLJitter: Off, StaleWhileRevalidate: Off, NegativeTTL: time.Second,
			ErrorBackoff: 10 * time.Millisecond, LocalMaxBytes: 1 << 20})
		short := 50_000
		switch {
		case all[0].link != nil:
			short = 800
		case raceEnabled:
			short = 3_000 // it makes a load many times slower
		}
		keys := atLength(short, 5_000_000)
		crowd := func(first, end int) {
			var callers sync.WaitGroup
			for worker := range 64 {
				callers.Go(func() {
					for key := first + worker; key < end; key += 64 {
						ask(t, all[key/3%len(all)], key)
					}
				})
			}
			callers.Wait()
		}
		crowd(1, 500) // what is made once is there now
		forgets(t, all)
		before := live()

		var early sync.WaitGroup
		early.Go(func() { ask(t, all[0], 0) })
		<-held
		during := left(all[0])
		equal(t, "records of a running load", during["cache.node.running.keys"]+during["cache.node.flights.group.m"], 2)
		close(hold)
		early.Wait()
		crowd(500, keys)
		forgets(t, all)
		limit := int64(len(all)) * (1 << 20) * 3 / 2
		if grown := live() - before; grown > limit {
			t.Errorf("%d keys later the heap has grown by %d KB, the limit is %d KB", keys, grown>>10, limit>>10)
		} else {
			t.Logf("%d keys later the heap has grown by %d KB", keys, grown>>10)
		}
	})
}

// Right: the removal of a key's records is safe against a join at the same moment: no second
// load. Joiners come when the loader returns, and by steps later.
func TestB100_AJoinWhileTheRecordsAreRemovedLoadsNothing(t *testing.T) {
	inTiers(t, func(t *testing.T, open func(loader.Loader[int, int], Options) []*Cache[int, int]) {
		var loads atomic.Int64
		var leaving atomic.Int64 // the key whose loader returns
		l := loader.Func(func(_ context.Context, key int) (int, error) {
			loads.Add(1)
			leaving.Store(int64(key))
			return key, outcome(key)
		})
		all := open(l, Options{TTL: time.Hour, NegativeTTL: time.Hour, ErrorBackoff: time.Minute})
		rounds := atLength(2000, 100_000)
		if all[0].link != nil {
			rounds = atLength(150, 100_000)
		}
		for key := 1; key <= rounds; key++ {
			var callers sync.WaitGroup
			callers.Go(func() { ask(t, all[0], key) })
			for joiner := range 4 {
				callers.Go(func() {
					for leaving.Load() != int64(key) {
						runtime.Gosched()
					}
					for range joiner * key % 64 {
						runtime.Gosched()
					}
					ask(t, all[joiner%len(all)], key)
				})
			}
			callers.Wait()
			if got := loads.Load(); got != int64(key) {
				t.Fatalf("%d loads of %d keys", got, key)
			}
		}
	})
}
