package cache_test

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// What a holder is told by its environment: the server, and the name of the cache.
const (
	holderServer = "HOLDER_REDIS"
	holderName   = "HOLDER_CACHE"
)

// A process that is told of a server is a holder, and goes no further.
func init() {
	if os.Getenv(holderServer) != "" {
		redistest.Main(nil, map[string]func(){"holder": holder})
	}
}

// holder is a node as a process. It asks for each key that it is sent, and its loads do not end.
func holder() {
	load := func(ctx context.Context, _ string) (string, error) {
		redistest.Say("loading")
		<-ctx.Done()
		return "", context.Cause(ctx)
	}
	o := undisturbed()
	o.LocalMaxBytes = cache.Off
	o.Redis = redis.NewClient(&redis.Options{Addr: os.Getenv(holderServer)})
	c, err := cache.New(os.Getenv(holderName), loader.Func(load), o)
	if err != nil {
		redistest.Say("%v", err)
		return
	}
	redistest.Say("ready")
	for key := range redistest.Input() {
		go func() { _, _ = c.Get(context.Background(), key) }()
	}
}

const (
	busyMachine = 5 * time.Second // what a busy machine may add to a bound
	processSays = 20 * time.Second
)

// undisturbed are settings for real time: whoever waits for the lease to run out waits for longer
// than a busy machine takes for everything else.
func undisturbed() cache.Options {
	o := settings()
	o.WaitTimeout, o.Lease = 500*time.Millisecond, 10*time.Second
	o.LoadTimeout, o.RedisTimeout = time.Minute, 5*time.Second
	return o
}

// immortals lists the keys that live for ever, after the number of all.
var immortals = redis.NewScript(`
local keys = redis.call('KEYS', '*')
local found = {tostring(#keys)}
for _, key in ipairs(keys) do
  if redis.call('PTTL', key) == -1 then found[#found + 1] = key end
end
return found`)

// sampleLifetimes looks for keys without a lifetime until it is told to stop. Then it says how many
// keys it has seen, each counted each time.
func (f *fleet) sampleLifetimes(every time.Duration) (stop func() (seen int)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	seen, immortal := 0, map[string]bool{}
	running.Go(func() {
		for ; ctx.Err() == nil; _ = pass(ctx, every) {
			found, err := immortals.Run(context.Background(), f.probe, nil).StringSlice()
			if err != nil {
				f.t.Errorf("the sampler: %v", err)
				return
			}
			keys, _ := strconv.Atoi(found[0])
			seen += keys
			for _, key := range found[1:] {
				immortal[key] = true
			}
		}
	})
	return sync.OnceValue(func() int {
		cancel()
		running.Wait()
		if len(immortal) > 0 {
			f.t.Errorf("%d keys were seen without a lifetime: %v", len(immortal), slices.Collect(maps.Keys(immortal)))
		}
		return seen
	})
}

// Number: no key without a lifetime in any sample, and the next caller is served within
// WaitTimeout and one load. Our lease lies inside the entry, so every key of ours is looked at.
// Every other kill comes up to 60 ms after the call: a new process is about to ask for the lease then,
// or has it already.
func TestB29_AKilledHolderLeavesNoKeyWithoutALifetime(t *testing.T) {
	s := redistest.RealOnly(t)
	o := undisturbed()
	f := onServer(t, s, 1, o)
	survivor := f.nodes[0]
	stop := f.sampleLifetimes(time.Millisecond)
	defer stop()
	start := func() *redistest.Proc {
		return redistest.Process(t, "holder", holderServer+"="+s.Addr(), holderName+"="+f.name())
	}
	rounds, orphans := soak(15, 500), 0
	var next calls
	following := start()
	for i := range rounds {
		n, key := following, "k"+strconv.Itoa(i)
		if i < rounds-1 {
			following = start() // it takes its time meanwhile
		}
		equal(t, "a holder says", n.Line(processSays), "ready")
		n.Send(key)
		loading, moment := i%2 == 0, 60*time.Millisecond
		if loading {
			moment = 20 * time.Millisecond
			equal(t, "a holder says", n.Line(processSays), "loading")
		}
		must(t, pass(t.Context(), rand.N(moment)))
		n.Kill()
		if f.lease(survivor.RedisKey(key)) != "" {
			orphans++
		} else if loading {
			t.Error("a holder was killed during its load, and has left no lease")
		}
		next.get(t.Context(), survivor, key)
	}
	for _, g := range next.wait() {
		if g.err != nil {
			t.Errorf("the next caller got %v", g.err)
		}
		within(t, "the next caller", g.took, o.WaitTimeout+200*time.Millisecond+busyMachine)
	}
	equal(t, "loads of the next callers", f.queries(), rounds)
	if seen := stop(); seen < rounds {
		t.Errorf("the sampler has seen %d keys in %d rounds", seen, rounds)
	}
	t.Logf("%d of %d kills orphaned a lease", orphans, rounds)
	f.forgetOrphans(t)
}

// forgetOrphans deletes the entries whose lease still has some time to live, once it is known to
// be no longer than the lease.
func (f *fleet) forgetOrphans(t *testing.T) {
	t.Helper()
	for key, left := range f.lifetimes() {
		if f.lease(key) == "" {
			continue
		}
		if left > f.options.Lease {
			t.Errorf("an orphan lives for %v, longer than the lease", left)
		}
		must(t, f.probe.Del(t.Context(), key).Err())
	}
}

// Number: refused when the cache is built, with a clear message. The table of what is refused is
// in TestB34_OddLeaseAndWaitSettingsAreRefusedOrReplaced; here nothing reaches Redis by it.
func TestB34_ARefusedLeaseSendsNothing(t *testing.T) {
	inBubble(t, 1, settings(), func(t *testing.T, f *fleet) {
		gets(t, f.nodes[0], "k", value("k", 1))
		entry, sent := f.raw("k"), f.mini.Mini().CommandCount()
		for lease, says := range map[time.Duration]string{
			-time.Second:           "Options.Lease: -1s is negative",
			500 * time.Microsecond: "Options.Lease: 500µs is below 100ms: it could not be renewed in time",
		} {
			o := settings()
			o.Redis, o.Lease = f.nodes[0].client, lease
			c, err := cache.New(f.name(), loader.Func(f.load), o)
			if c != nil || err == nil {
				t.Fatalf("a lease of %v was accepted", lease)
			}
			equal(t, "refusal", err.Error(), `levee: cache "`+f.name()+`": `+says)
		}
		synctest.Wait()
		equal(t, "commands sent", f.mini.Mini().CommandCount()-sent, 0)
		equal(t, "the entry", f.raw("k"), entry)
	})
}

// Number: replaced by a documented default; never a delete through an expiry of 0, never a busy
// loop. Nobody sets our pauses: polls begin 50 ms apart and slow down to 500 ms, and renewals
// follow LocalTTL too, so the second row is the "renewal period longer than Lease". A WaitTimeout of
// -1 is Off.
func TestB34_AnOddSettingThatIsAcceptedKeepsTheLeaseQuietly(t *testing.T) {
	const load = 10 * time.Second
	for name, tc := range map[string]struct{ set, lease time.Duration }{
		"no lease set":                     {0, 3 * time.Second},
		"a lease shorter than its renewal": {100 * time.Millisecond, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			o := settings()
			o.Lease, o.WaitTimeout, o.LoadTimeout = tc.set, -1, time.Minute
			inBubble(t, 2, o, func(t *testing.T, f *fleet) {
				f.options.Lease = tc.lease
				f.query = takes(load)
				holder := start(t.Context(), 1, "k", f.nodes[0])
				synctest.Wait()
				waiters := start(t.Context(), 10, "k", f.nodes[1])
				f.holdsFor(t, "k", load-time.Millisecond)
				sent := f.begun("evalsha", "eval", "get", "getrange", "time")

				allGet(t, holder.wait(), value("k", 1), load)
				allGet(t, waiters.wait(), value("k", 1), load)
				equal(t, "loads", f.queries(), 1)
				equal(t, "leases lost", f.nodes[0].Stats().LeasesLost, 0)
				renewals := int(load / min(tc.lease/3, o.LocalTTL*4/5))
				polls := int(load / min(tc.lease*2/3, 250*time.Millisecond)) // also when the lease should have ended
				if most := renewals + polls + 20; sent > most {
					t.Errorf("%d commands in %v, want %d at the most", sent, load, most)
				}
			})
		})
	}
}

// holdsFor checks, for some of the bubble's time, that one lease of key stands and has no longer
// to live than a lease may.
func (f *fleet) holdsFor(t *testing.T, key string, d time.Duration) {
	t.Helper()
	name := f.nodes[0].RedisKey(key)
	token := f.lease(name)
	for began := time.Now(); time.Since(began) < d; time.Sleep(min(10*time.Millisecond, d-time.Since(began))) {
		now, left := f.lease(name), f.lifetimes()[name]
		if now == "" || now != token || left <= 0 || left > f.options.Lease {
			t.Fatalf("after %v: lease %q, then %q, with %v to live", time.Since(began), token, now, left)
		}
	}
}

// Number: no key is left 2 x Lease later, none is ever without a lifetime. A failure is remembered
// for twice its back-off, which doubles if the key's other call fails too; without a back-off no
// record is left by any failure.
func TestB35_FailedLoadsLeaveNoKey(t *testing.T) {
	for name, backoff := range map[string]time.Duration{"with a back-off": 200 * time.Millisecond, "without": cache.Off} {
		t.Run(name, func(t *testing.T) {
			o := settings()
			o.ErrorBackoff, o.RedisTimeout = backoff, 5*time.Second
			f := onServer(t, redistest.Shared(t), 2, o)
			broken := errors.New("no route to the database")
			f.query = func(context.Context, string, int) error { return broken }
			stop := f.sampleLifetimes(10 * time.Millisecond)
			defer stop()
			keys := soak(400, 100_000)
			f.allFail(t, keys)
			for key, left := range f.lifetimes() {
				if left > max(0, 2*2*backoff) {
					t.Errorf("%q lives for %v", key, left)
				}
			}
			redistest.Eventually(t, 2*o.Lease, func() bool { return len(f.keys()) == 0 }, "no key is left")
			if seen := stop(); backoff > 0 && seen < keys {
				t.Errorf("the sampler has seen %d keys", seen)
			}
			equal(t, "calls without Redis", f.sum(func(s cache.Stats) int64 { return s.RedisErrors }), 0)
		})
	}
}

// allFail asks for so many keys on all nodes at once, some hundred at a time.
func (f *fleet) allFail(t *testing.T, keys int) {
	t.Helper()
	const atOnce = 250
	for from := 0; from < keys; from += atOnce {
		var all calls
		for i := from; i < min(keys, from+atOnce); i++ {
			for _, n := range f.nodes {
				all.get(t.Context(), n, strconv.Itoa(i))
			}
		}
		for _, g := range all.wait() {
			if g.err == nil {
				t.Fatalf("a failed load brought %q", g.value)
			}
		}
	}
	if loads := f.queries(); loads < keys {
		t.Errorf("%d loads of %d keys", loads, keys)
	}
}
