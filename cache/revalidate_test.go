package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

type (
	previous = loader.Previous[string]
	result   = loader.Result[string]
)

// original is a row that all keys stand for. Its loads say "not modified" where the row version that
// they are told is the row's own, unless says is set.
type original struct {
	mu        sync.Mutex // guards what follows
	value     string
	row       uint64 // 0: there is no such record
	takes     time.Duration
	says      func(*previous) (result, error)
	told      []*previous // by each load
	unchanged int         // loads that said "not modified" by themselves
}

func newOriginal(value string) *original {
	return &original{value: value, row: 1, takes: 200 * time.Millisecond}
}

func (r *original) load(ctx context.Context, _ string, p *previous) (result, error) {
	answer, takes, err := r.ask(p)
	if late := pass(ctx, takes); late != nil {
		return result{}, late
	}
	return answer, err
}

func (r *original) ask(p *previous) (result, time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, p)
	switch {
	case r.says != nil:
		answer, err := r.says(p)
		return answer, r.takes, err
	case r.row == 0:
		return result{}, r.takes, fmt.Errorf("no row: %w", loader.ErrNotFound)
	case p != nil && p.RowVersion == r.row:
		r.unchanged++
		return result{NotModified: true, RowVersion: r.row}, r.takes, nil
	}
	return result{Value: r.value, RowVersion: r.row}, r.takes, nil
}

func (r *original) edit(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// write makes the next version of the row.
func (r *original) write(value string) {
	r.edit(func() { r.row++; r.value = value })
}

// say makes loads that begin from now on answer so.
func (r *original) say(answer result, err error) {
	r.edit(func() { r.says = func(*previous) (result, error) { return answer, err } })
}

func (r *original) loads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.told)
}

// last is what the last load was told.
func (r *original) last() *previous {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[len(r.told)-1]
}

// joinWith adds a node with a loader of its own to f.
func (f *fleet) joinWith(l loader.Loader[string, string], client redis.UniversalClient, o cache.Options) *node {
	f.t.Helper()
	n := &node{client: client, faults: redistest.NewFaults(f.t)}
	if client != nil {
		client.AddHook(n.faults)
		client.AddHook(watcher{f})
		o.Redis = client
	}
	var err error
	n.Cache, err = cache.New(f.name(), l, o)
	must(f.t, err)
	f.nodes = append(f.nodes, n)
	f.t.Cleanup(func() {
		f.checked.Do(f.check)
		must(f.t, n.Close())
	})
	return n
}

// revalidating runs body in a bubble, with so many nodes in front of r.
func revalidating(t *testing.T, nodes int, o cache.Options, r *original, body func(*testing.T, *fleet)) {
	t.Helper()
	inBubble(t, 0, o, func(t *testing.T, f *fleet) {
		for range nodes {
			client, _ := f.dial()
			f.joinWith(loader.Revalidate(r.load), client, o)
		}
		body(t, f)
	})
}

// alone runs body in a bubble, with one node without Redis.
func alone(t *testing.T, o cache.Options, r *original, body func(*testing.T, *node)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, err := cache.New("alone", loader.Revalidate(r.load), o)
		must(t, err)
		defer c.Close()
		body(t, &node{Cache: c})
	})
}

// isTold checks what the last load was told.
func isTold(t *testing.T, r *original, want *previous) {
	t.Helper()
	if got := r.last(); !reflect.DeepEqual(got, want) {
		t.Errorf("the load was told %+v, want %+v", got, want)
	}
}

func TestARevalidatingLoaderIsGivenThePreviousValueWithVersionAndAge(t *testing.T) {
	r := newOriginal("v1")
	revalidating(t, 2, settings(), r, func(t *testing.T, f *fleet) {
		gets(t, f.nodes[0], "k", "v1")
		e, err := f.nodes[0].GetEntry(t.Context(), "k")
		must(t, err)
		time.Sleep(15*time.Second - e.Age)
		r.write("v2")
		gets(t, f.nodes[1], "k", "v1") // which has it from Redis
		synctest.Wait()
		isTold(t, r, &previous{Value: "v1", RowVersion: 1, Version: e.Version, Age: 15 * time.Second})
		time.Sleep(time.Second)
		for _, n := range f.nodes {
			gets(t, n, "k", "v2")
		}
	})
	lonely := newOriginal("v1")
	alone(t, settings(), lonely, func(t *testing.T, n *node) {
		gets(t, n, "k", "v1")
		time.Sleep(15*time.Second - 200*time.Millisecond)
		gets(t, n, "k", "v1")
		synctest.Wait()
		isTold(t, lonely, &previous{Value: "v1", RowVersion: 1, Age: 15 * time.Second})
		time.Sleep(time.Second)
	})
}

func TestARevalidatingLoaderIsGivenNothingWhereNothingIs(t *testing.T) {
	for situation, prepare := range map[string]func(*testing.T, *node, *original){
		"cold": func(*testing.T, *node, *original) {},
		"deleted": func(t *testing.T, n *node, _ *original) {
			gets(t, n, "k", "v1")
			must(t, n.Delete(t.Context(), "k"))
		},
		"not-found": func(t *testing.T, n *node, r *original) {
			r.edit(func() { r.row = 0 })
			_, err := n.Get(t.Context(), "k")
			equal(t, "not found", errors.Is(err, cache.ErrNotFound), true)
			r.write("v1")
			time.Sleep(time.Second)
		},
		"long-gone": func(t *testing.T, n *node, _ *original) {
			gets(t, n, "k", "v1")
			time.Sleep(time.Hour)
		},
	} {
		t.Run(situation, func(t *testing.T) {
			r := newOriginal("v1")
			revalidating(t, 1, settings(), r, func(t *testing.T, f *fleet) {
				prepare(t, f.nodes[0], r)
				gets(t, f.nodes[0], "k", "v1")
				isTold(t, r, nil)
			})
		})
	}
}

// The large value travels to Redis when it has changed, and at no other time, however often it is
// found unchanged. In a bubble.
func TestAnUnchangedValueIsSentToRedisOnce(t *testing.T) {
	v1, v2 := strings.Repeat("1", 64<<10), strings.Repeat("2", 64<<10)
	r := newOriginal(v1)
	revalidating(t, 3, settings(), r, func(t *testing.T, f *fleet) {
		r.say(result{Value: "small"}, nil)
		gets(t, f.nodes[0], "other", "small") // so that the server has the scripts
		r.edit(func() { r.says = nil })
		large := make([]*redistest.Rule, len(f.nodes))
		for i, n := range f.nodes {
			large[i] = n.faults.Delay(func(c redis.Cmder) bool { return isCommit(c) && len(fmt.Sprintf("%s", c.Args())) > 32<<10 }, time.Nanosecond)
		}
		sent := func() (n int) {
			for _, rule := range large {
				n += rule.Count()
			}
			return n
		}
		read := func(want string) {
			for range 100 {
				for _, n := range f.nodes {
					if v, err := n.Get(t.Context(), "k"); v != want || err != nil {
						t.Fatalf("got %.10q, %v, want %.10q", v, err, want)
					}
				}
				time.Sleep(500 * time.Millisecond)
			}
		}
		read(v1)
		equal(t, "commits with the value", sent(), 1)
		equal(t, "loads that found it unchanged", r.unchanged >= 4, true)
		equal(t, "commits", f.sum(func(s cache.Stats) int64 { return s.Commits }), int64(r.loads()))
		r.write(v2)
		time.Sleep(15 * time.Second)
		f.nodes[0].Get(t.Context(), "k") // begins the refresh
		time.Sleep(2 * time.Second)
		read(v2)
		equal(t, "commits with the value", sent(), 2)
		equal(t, "failures", f.sum(func(s cache.Stats) int64 { return s.Failures }), 0)
	})
}

// Early refreshes that find nothing changed keep the value fresh for ever.
func TestAnUnchangedValueThatIsReadOftenNeverExpires(t *testing.T) {
	o := settings()
	o.EarlyRefresh = 100 // 20 s at this cost: in the last fifth nearly every read begins one
	for name, run := range map[string]func(*original, func(*testing.T, *node)){
		"with Redis": func(r *original, body func(*testing.T, *node)) {
			revalidating(t, 1, o, r, func(t *testing.T, f *fleet) { body(t, f.nodes[0]) })
		},
		"without Redis": func(r *original, body func(*testing.T, *node)) { alone(t, o, r, body) },
	} {
		r := newOriginal("v1")
		run(r, func(t *testing.T, n *node) {
			gets(t, n, "k", "v1")
			began := time.Now()
			for range 1000 {
				e, err := n.GetEntry(t.Context(), "k")
				if e.Value != "v1" || err != nil || e.State != cache.StateFresh || e.Age >= 10*time.Second {
					t.Fatalf("%s: got %+v, %v", name, e, err)
				}
				time.Sleep(50 * time.Millisecond)
			}
			equal(t, name+": no read has waited", time.Since(began), 50*time.Second)
			s := n.Stats()
			equal(t, name+": all refreshes were early", s.EarlyRefreshes, s.Loads-1)
			equal(t, name+": each found it unchanged", int64(r.unchanged), s.Loads-1)
			if s.Loads < 5 || s.Loads > 8 {
				t.Errorf("%s: %d loads in 50 s, want one in each 8 to 10 s", name, s.Loads)
			}
			time.Sleep(time.Second)
		})
	}
}

func TestNotModifiedWithoutAPreviousValueIsAFailure(t *testing.T) {
	r := newOriginal("v1")
	r.say(result{NotModified: true, Value: "v0"}, nil)
	revalidating(t, 2, settings(), r, func(t *testing.T, f *fleet) {
		for _, g := range start(t.Context(), 10, "k", f.nodes[0]).wait() {
			equal(t, "error", errors.Is(g.err, loader.ErrNoPrevious), true)
			equal(t, "value", g.value, "")
		}
		for _, n := range f.nodes {
			_, err := n.Get(t.Context(), "k")
			if b, ok := errors.AsType[*cache.BackoffError](err); !ok || b.Message != loader.ErrNoPrevious.Error() {
				t.Errorf("the next call got %v", err)
			}
		}
		equal(t, "loads", r.loads(), 1)
		equal(t, "failures", f.nodes[0].Stats().Failures, 1)
		r.edit(func() { r.says = nil })
		time.Sleep(time.Second)
		gets(t, f.nodes[1], "k", "v1")
	})
}

// In a bubble: the value is fresh for its own time, of the options' 10 s, and then stale for 30 s.
func TestTheLoadersTTLReplacesTheOptions(t *testing.T) {
	for _, own := range []time.Duration{3 * time.Second, time.Minute} {
		r := newOriginal("v1")
		r.say(result{Value: "v1", TTL: own}, nil)
		check := func(t *testing.T, n *node) {
			gets(t, n, "k", "v1")
			for _, tc := range []struct {
				at    time.Duration
				state cache.State
			}{{own - time.Millisecond, cache.StateFresh}, {own, cache.StateStale}} {
				e, err := n.GetEntry(t.Context(), "k", cache.NoStore()) // which begins no refresh
				must(t, err)
				time.Sleep(tc.at + 200*time.Millisecond - e.Age)
				e, err = n.GetEntry(t.Context(), "k", cache.NoStore())
				must(t, err)
				equal(t, fmt.Sprint("state at ", tc.at), e.State, tc.state)
			}
			time.Sleep(time.Second)
		}
		revalidating(t, 1, settings(), r, func(t *testing.T, f *fleet) {
			check(t, f.nodes[0])
			equal(t, "lifetime", f.lifetimes()[f.nodes[0].RedisKey("k")], 30*time.Second-time.Second)
		})
		alone(t, settings(), r, check)
	}
}

func TestTheLoadersTTLIsJitteredAndAtMostAYear(t *testing.T) {
	o := settings()
	o.TTLJitter = 0.5
	r := newOriginal("v1")
	r.takes = 0
	revalidating(t, 1, o, r, func(t *testing.T, f *fleet) {
		n := f.nodes[0]
		for own, longest := range map[time.Duration]time.Duration{20 * time.Second: 20 * time.Second, math.MaxInt64: 365 * 24 * time.Hour} {
			r.say(result{Value: "v1", TTL: own}, nil)
			seen := map[time.Duration]bool{}
			for i := range 50 {
				k := fmt.Sprint(i)
				must(t, n.Delete(t.Context(), k))
				gets(t, n, k, "v1")
				left := f.probe.PTTL(t.Context(), n.RedisKey(k)).Val() - 30*time.Second
				seen[left] = true
				if left < longest/2 || left > longest {
					t.Errorf("a TTL of %v became %v", own, left)
				}
			}
			equal(t, "the times differ", len(seen) > 25, true)
		}
	})
}

func TestNotFoundMayHaveItsOwnTTL(t *testing.T) {
	for name, tc := range map[string]struct {
		negative time.Duration // of the options
		own      result
		want     time.Duration // for which it is believed
	}{
		"longer":          {time.Second, result{TTL: 20 * time.Second}, 20 * time.Second},
		"shorter":         {5 * time.Second, result{TTL: 2 * time.Second}, 2 * time.Second},
		"where it is off": {cache.Off, result{TTL: 20 * time.Second}, 20 * time.Second},
		"none":            {3 * time.Second, result{}, 3 * time.Second},
		"below zero":      {5 * time.Second, result{TTL: -1}, 0},
		"do not store":    {5 * time.Second, result{NoStore: true}, 0},
		"off":             {cache.Off, result{}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := settings()
			o.NegativeTTL = tc.negative
			r := newOriginal("")
			r.say(tc.own, fmt.Errorf("no row: %w", loader.ErrNotFound))
			check := func(t *testing.T, n *node) {
				notFound := func() {
					t.Helper()
					e, err := n.GetEntry(t.Context(), "k")
					if !errors.Is(err, cache.ErrNotFound) || !e.NotFound {
						t.Errorf("got %+v, %v", e, err)
					}
				}
				notFound()
				_, ok, err := n.Peek(t.Context(), "k")
				must(t, err)
				equal(t, "it is cached", ok, tc.want > 0)
				if tc.want > 0 {
					time.Sleep(tc.want - time.Millisecond)
					notFound()
					equal(t, "loads", r.loads(), 1)
					time.Sleep(time.Millisecond)
				}
				notFound()
				equal(t, "loads", r.loads(), 2)
				equal(t, "failures", n.Stats().Failures, 0)
			}
			revalidating(t, 1, o, r, func(t *testing.T, f *fleet) { check(t, f.nodes[0]) })
			r.edit(func() { r.told = nil })
			alone(t, o, r, check)
		})
	}
}

// A replica that lags behind answers the refresh: the newer value that a Set has stored stays.
func TestAValueOfAnOlderRowThanASetsIsNotStored(t *testing.T) {
	r := newOriginal("v1")
	revalidating(t, 2, settings(), r, func(t *testing.T, f *fleet) {
		must(t, f.nodes[0].Set(t.Context(), "k", "v9", cache.RowVersion(9)))
		for _, tc := range []struct {
			row  uint64
			want string
		}{{8, "v9"}, {1, "v9"}, {9, "row 9"}, {0, "row 0"}, {8, "row 0"}, {10, "row 10"}} {
			time.Sleep(15 * time.Second)
			r.say(result{Value: fmt.Sprint("row ", tc.row), RowVersion: tc.row}, nil)
			loads := r.loads()
			f.nodes[0].Get(t.Context(), "k") // begins the refresh
			time.Sleep(300 * time.Millisecond)
			equal(t, "loads", r.loads() > loads, true)
			r.say(result{}, errors.New("down"))
			time.Sleep(time.Second)
			f.stores("k", tc.want)
			for _, n := range f.nodes {
				gets(t, n, "k", tc.want)
			}
			r.say(result{Value: tc.want}, nil) // ends the back-off; without a row it changes none
			time.Sleep(6 * time.Second)
			gets(t, f.nodes[0], "k", tc.want)
			time.Sleep(time.Second)
		}
		equal(t, "refused", f.sum(func(s cache.Stats) int64 { return s.Refused }) >= 3, true)
	})
}

// unkeepable are the answers of a load that must reach everybody who waits, and stay nowhere.
var unkeepable = map[string]result{
	"do not store":            {Value: "secret", NoStore: true},
	"a TTL below zero":        {Value: "secret", TTL: -time.Second},
	"too large":               {Value: strings.Repeat("x", 1001)},
	"do not store; not found": {NoStore: true},
}

func TestWhatMayNotBeStoredReachesAllWhoWaitAndStaysNowhere(t *testing.T) {
	o := settings()
	o.MaxValueBytes = 1000
	for name, answer := range unkeepable {
		t.Run(name, func(t *testing.T) {
			r := newOriginal("v1")
			var failure error
			if answer.Value == "" {
				failure = loader.ErrNotFound
			}
			check := func(t *testing.T, nodes ...*node) {
				for _, n := range nodes {
					gets(t, n, "k", "v1")
				}
				before := r.loads()
				time.Sleep(15 * time.Second)
				r.say(answer, failure)
				all := func(want int) {
					t.Helper()
					calls := &calls{}
					for i := range 100 {
						n := nodes[i%len(nodes)]
						calls.running.Go(func() {
							v, err := n.Get(t.Context(), "k", cache.Fresh())
							if v != answer.Value || !errors.Is(err, failure) {
								t.Errorf("got %.10q, %v", v, err)
							}
						})
					}
					calls.wait()
					equal(t, "loads", r.loads()-before, want)
				}
				all(len(nodes))
				all(2 * len(nodes)) // each node again, as nothing is kept
				for _, n := range nodes {
					e, ok, err := n.Peek(t.Context(), "k")
					must(t, err)
					equal(t, fmt.Sprintf("something is cached: %+v", e), ok, false)
					equal(t, "failures", n.Stats().Failures, 0)
				}
				r.say(result{}, errSourceDown)
				for _, n := range nodes {
					_, err := n.Get(t.Context(), "k") // not the stale value
					equal(t, "error of the next load", errors.Is(err, errSourceDown), true)
				}
			}
			revalidating(t, 3, o, r, func(t *testing.T, f *fleet) {
				check(t, f.nodes...)
				if raw := f.raw("k"); strings.Contains(raw, "secret") || strings.Contains(raw, "v1") {
					t.Errorf("Redis holds %q", raw)
				}
			})
			r = newOriginal("v1")
			alone(t, o, r, func(t *testing.T, n *node) { check(t, n) })
		})
	}
}

// stubborn is a value that JSON cannot write.
type stubborn struct{ text string }

func (stubborn) MarshalJSON() ([]byte, error) { return nil, errors.New("not today") }

func TestAValueThatCannotBeEncodedReachesAllWhoWait(t *testing.T) {
	inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
		client, _ := f.dial()
		o := settings()
		o.Redis = client
		loads := 0
		c, err := cache.New("stubborn", loader.Revalidate(func(ctx context.Context, _ string, p *loader.Previous[stubborn]) (loader.Result[stubborn], error) {
			loads++
			if p != nil {
				t.Errorf("told %+v", p)
			}
			return loader.Result[stubborn]{Value: stubborn{"v1"}, TTL: time.Hour, RowVersion: 1}, pass(ctx, 100*time.Millisecond)
		}), o)
		must(t, err)
		defer c.Close()
		for round := range 2 {
			var waiting sync.WaitGroup
			for range 20 {
				waiting.Go(func() {
					if v, err := c.Get(t.Context(), "k"); v.text != "v1" || err != nil {
						t.Errorf("got %+v, %v", v, err)
					}
				})
			}
			waiting.Wait()
			equal(t, "loads", loads, round+1)
		}
		equal(t, "not stored", c.Stats().Unstorable, 2)
	})
}

// For a second the nodes load beside each other: nobody waits for another's load. A new node that
// comes during another's load takes no longer than its own.
func TestForASecondNobodyWaitsForWhatWillNotCome(t *testing.T) {
	r := newOriginal("v1")
	r.say(result{Value: "v1", NoStore: true}, nil)
	revalidating(t, 3, settings(), r, func(t *testing.T, f *fleet) {
		gets(t, f.nodes[0], "k", "v1")
		began := time.Now()
		for time.Since(began) < 700*time.Millisecond {
			all := start(t.Context(), 30, "k", f.nodes...)
			allGet(t, all.wait(), "v1", 200*time.Millisecond)
			equal(t, "leases", f.leases(), 0)
		}
		equal(t, "loads", r.loads(), 1+4*3)
		equal(t, "waits", f.sum(func(s cache.Stats) int64 { return s.Waits }), 0)
	})
}

// keptAs checks that a value that is found unchanged is afterwards on another node what it was.
func keptAs[V any](t *testing.T, f *fleet, name string, want V) {
	loads := 0
	l := loader.Revalidate(func(_ context.Context, _ string, p *loader.Previous[V]) (loader.Result[V], error) {
		loads++
		if p == nil {
			return loader.Result[V]{Value: want, RowVersion: 3}, nil
		}
		if !reflect.DeepEqual(p.Value, want) || p.RowVersion != 3 {
			t.Errorf("%s: the load was told %#v", name, p)
		}
		return loader.Result[V]{NotModified: true}, nil
	})
	for i := range 3 {
		o := settings()
		o.Redis, _ = f.dial()
		c, err := cache.New(name, l, o)
		must(t, err)
		defer c.Close()
		if i < 2 {
			_, err := c.Refresh(t.Context(), "k")
			must(t, err)
		}
		e, err := c.GetEntry(t.Context(), "k")
		if err != nil || e.NotFound || e.State != cache.StateFresh || !reflect.DeepEqual(e.Value, want) {
			t.Errorf("%s: node %d got %#v, %v", name, i, e, err)
		}
	}
	equal(t, "loads of "+name, loads, 2)
}

func TestNotModifiedKeepsAValueOfAnyKindAsItWas(t *testing.T) {
	type user struct{ Name string }
	inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
		keptAs(t, f, "string", "ü%s\x00")
		keptAs(t, f, "empty-string", "")
		keptAs(t, f, "bytes", bytes.Repeat([]byte{0xff}, 10<<10))
		keptAs(t, f, "nil-bytes", []byte(nil))
		keptAs(t, f, "empty-bytes", []byte{})
		keptAs(t, f, "nil-pointer", (*user)(nil))
		keptAs(t, f, "struct", user{"Ada"})
		keptAs(t, f, "nil-map", map[string]int(nil))
	})
}

// On a real server, behind a proxy that counts the bytes.
func TestARefreshThatFindsNothingChangedSendsLittle(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	r := newOriginal(large)
	r.takes = 0
	o := settings()
	o.RedisTimeout, o.Lease = 10*time.Second, 20*time.Second
	s := redistest.Shared(t)
	f := onServer(t, s, 0, o)
	p := redistest.NewProxy(t, s.Addr())
	n := f.joinWith(loader.Revalidate(r.load), p.Client(t, s), o)
	other := f.joinWith(loader.Revalidate(r.load), s.Client(t), o)
	refresh := func() (sent int64) {
		before := p.Stats().BytesUp
		v, err := n.Refresh(t.Context(), "k")
		equal(t, "value", err == nil && v == large, true)
		return p.Stats().BytesUp - before
	}
	if sent := refresh(); sent < 1<<20 {
		t.Fatalf("a first load sent %d bytes", sent)
	}
	for range 3 {
		if sent := refresh(); sent > 16<<10 {
			t.Errorf("a refresh that found nothing changed sent %d bytes", sent)
		}
	}
	equal(t, "loads that found it unchanged", r.unchanged, 3)
	e, err := other.GetEntry(t.Context(), "k")
	equal(t, "value elsewhere", err == nil && e.Value == large && e.Source == cache.SourceRemote, true)
	equal(t, "loads", r.loads(), 4)
}
