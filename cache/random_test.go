package cache_test

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

var (
	randomSeed = flag.Uint64("random.seed", 0, "first seed of TestRandomSchedules; 0 draws one")
	randomRuns = flag.Int64("random.runs", 0, "how many schedules; 0 for as many as an ordinary test has, or an hour's under LEVEE_SOAK=1")
)

// TestRandomSchedules runs what its seeds draw: three nodes, three keys, calls, loads and faults,
// each in a bubble of its own, and holds every answer, every load and every entry in Redis
// against a reference. A schedule that breaks a rule is printed; -random.seed and
// -random.runs=1 draw it again. The order of what happens at one instant is the runtime's, so
// it may take some -count to show again.
func TestRandomSchedules(t *testing.T) {
	seeds := drawSeeds()
	t.Cleanup(func() { t.Logf("%d schedules from seed %d", min(seeds.drawn.Load(), seeds.runs), seeds.first) })
	for i := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprint("worker", i), func(t *testing.T) {
			t.Parallel()
			for seed, ok := seeds.next(); ok; seed, ok = seeds.next() {
				if !runRandom(t, seed) {
					seeds.stopped.Store(true)
				}
			}
		})
	}
}

// seeds are handed out in turn, until one has failed.
type seeds struct {
	first   uint64
	runs    int64
	ends    time.Time // zero: only runs counts
	drawn   atomic.Int64
	stopped atomic.Bool
}

func drawSeeds() *seeds {
	s := &seeds{first: *randomSeed, runs: *randomRuns}
	if s.first == 0 {
		s.first = rand.Uint64N(1 << 40)
	}
	switch {
	case s.runs > 0:
	case os.Getenv("LEVEE_SOAK") == "1":
		s.runs, s.ends = math.MaxInt64, time.Now().Add(time.Hour)
	case hasRaceDetector():
		s.runs = 200
	default:
		s.runs = 600
	}
	return s
}

func hasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func (s *seeds) next() (seed uint64, ok bool) {
	if s.stopped.Load() || !s.ends.IsZero() && time.Now().After(s.ends) {
		return 0, false
	}
	n := s.drawn.Add(1)
	return s.first + uint64(n) - 1, n <= s.runs
}

// runRandom runs one schedule.
func runRandom(t *testing.T, seed uint64) bool {
	defer func() {
		if p := recover(); p != nil { // the bubble did not come to its end
			t.Errorf("seed %d: %v", seed, p)
		}
	}()
	synctest.Test(t, func(t *testing.T) {
		w := newRandomWorld(t, planOf(seed))
		w.play()
		w.settle()
		w.close()
	})
	return !t.Failed()
}

// randomWorld is a run: the nodes, the keys and what has happened.
type randomWorld struct {
	*randomPlan
	limits
	t       *testing.T
	bubble  *redistest.BubbleServer
	started time.Time
	keys    []string
	writers []chan struct{} // a token for the one writer of each key
	running sync.WaitGroup  // steps under way

	mu       sync.Mutex // guards what follows, and all that hangs on it; never held while anybody waits
	ledgers  []*ledger
	nodes    [3]*randomNode
	replaced [3]int
	all      []*randomNode
	history  []happening
	calm     bool          // the faults are over
	calmLoad time.Duration // then
	over     bool          // a rule was broken
}

// limits are what the options of a run promise.
type limits struct {
	fresh, stale, negative time.Duration // from when a value was brought until it is served no more
	elsewhere              time.Duration // from a confirmed invalidation until all nodes know
	lag                    time.Duration // from when a node was kept from Redis until its load begins
	wait                   time.Duration // of any call
}

type happening struct {
	at        time.Duration
	key, what string // no key: concerns all
}

func newRandomWorld(t *testing.T, p *randomPlan) *randomWorld {
	w := &randomWorld{randomPlan: p, t: t, limits: limitsOf(p), bubble: redistest.Bubble(t), started: time.Now(), keys: []string{"k0", "k1", "k2"}}
	for i := range w.nodes {
		w.newNode(i)
	}
	for _, k := range w.keys {
		w.ledgers = append(w.ledgers, &ledger{w: w, key: k, redisKey: w.nodes[0].RedisKey(k), version: 1, made: map[int]time.Duration{}})
		w.writers = append(w.writers, make(chan struct{}, 1))
	}
	return w
}

func limitsOf(p *randomPlan) limits {
	o := p.o
	late := 2 * o.RedisTimeout
	if p.faulty {
		late += 4 * time.Second // a commit may be held back and still find its lease
	}
	lag := o.RedisTimeout
	if o.MaxConcurrentLoads > 0 {
		lag += o.LoadTimeout // in front of the bulkhead
	}
	local := o.LocalTTL
	if local == 0 {
		local = min(o.TTL, time.Second)
	}
	return limits{
		fresh:     o.TTL + late,
		stale:     o.TTL + max(o.StaleIfError, o.StaleWhileRevalidate, 0) + time.Second + late, // a slow refresh is waited for
		negative:  o.NegativeTTL + late,
		elsewhere: local,
		lag:       lag,
		wait:      3 * (2*o.LoadTimeout + o.Lease + time.Second),
	}
}

func (w *randomWorld) now() time.Duration { return time.Since(w.started) }

func (w *randomWorld) note(key, format string, args ...any) {
	w.history = append(w.history, happening{w.now(), key, fmt.Sprintf(format, args...)})
}

// report fails the test with what has happened to a key, or to all, once.
func (w *randomWorld) report(key, what string) {
	if w.over {
		return
	}
	w.over = true
	var b strings.Builder
	for _, h := range w.history {
		if key == "" || h.key == "" || h.key == key {
			fmt.Fprintf(&b, "%14v %s %s\n", h.at, h.key, h.what)
		}
	}
	w.t.Errorf("-random.seed=%d -random.runs=1, after %v: %s: %s\n%+v\n%s", w.seed, w.now(), key, what, w.o, &b)
}

// play does the steps, each in its own time.
func (w *randomWorld) play() {
	for _, s := range w.steps {
		pause(s.at - w.now())
		w.running.Go(func() { w.do(s) })
	}
	ended := make(chan struct{})
	go func() {
		w.running.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * w.wait):
		w.mu.Lock()
		defer w.mu.Unlock()
		w.report("", "liveness: a call has not come back")
	}
}

// settle lets everything in the bubble come to rest without faults. Then every key can be read on every node,
// and after one more invalidation each has its newest version everywhere.
func (w *randomWorld) settle() {
	w.mu.Lock()
	w.calm, w.calmLoad = true, time.Millisecond
	w.mu.Unlock()
	for _, n := range w.nodes {
		n.faults.Clear()
	}
	time.Sleep(10*w.o.ErrorBackoff + w.o.LoadTimeout + w.o.Lease + probeAfter)
	w.readAll(func(*ledger, answer) bool { return true })
	for i := range w.keys {
		w.write(randomStep{deed: doDelete, key: i})
	}
	time.Sleep(w.elsewhere + time.Millisecond)
	w.readAll(func(l *ledger, a answer) bool { return isAbsence(a.err) || a.value == value(l.key, l.version) })
}

func (w *randomWorld) readAll(good func(*ledger, answer) bool) {
	for i, l := range w.ledgers {
		for _, n := range w.nodes {
			a := w.call(n, randomStep{deed: doGetEntry, key: i})
			w.mu.Lock()
			if a.err != nil && !isAbsence(a.err) || !good(l, a) {
				l.broken("liveness", "%v reads %q, %v in calm", n, a.value, a.err)
			}
			w.mu.Unlock()
		}
	}
}

// close closes all nodes in the middle of loads, and counts what they leave behind in the bubble.
func (w *randomWorld) close() {
	w.mu.Lock()
	w.calmLoad = w.o.LoadTimeout / 2
	w.mu.Unlock()
	for i, n := range w.nodes {
		w.write(randomStep{deed: doDelete, key: i, node: i})
		w.running.Go(func() { w.call(n, randomStep{deed: doGet, key: i}) })
	}
	time.Sleep(20 * time.Millisecond)
	for _, n := range w.all {
		w.running.Go(n.close)
	}
	w.running.Wait()
	time.Sleep(2 * w.o.LoadTimeout) // for the loads that do not listen
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.all {
		s := n.Stats()
		if s.AbandonedNow != 0 || s.Loads != n.loads || s.WrongKey+s.Undecodable+s.OtherCodec != 0 || !w.faulty && s.RedisErrors+s.Unconfirmed != 0 {
			w.report("", fmt.Sprintf("stats: %v had %d loads: %+v", n, n.loads, s))
		}
	}
}
