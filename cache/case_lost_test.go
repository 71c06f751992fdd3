package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// The cases of case_invalidate_test.go and case_lease_test.go, with messages lost. On the way of each some
// other key shows that what is only in doubt is verified, and not loaded.

func TestB58_ADeleteWhoseMessageIsLostKeepsTheOldRowOutOfTheSameNode(t *testing.T) {
	whateverGetsLost(t, 2, hours(), func(t *testing.T, f *fleet, _ time.Duration, lose func(func())) {
		n := f.nodes[0]
		f.fans(t, "doubted", 1)
		f.query = takes(300 * time.Millisecond)
		before := start(t.Context(), 10, "k", n)
		time.Sleep(100 * time.Millisecond)
		v2 := f.write("k")
		lose(func() { must(t, n.Delete(t.Context(), "k")) })
		f.never("k", value("k", 1))
		allGet(t, start(t.Context(), 10, "k", n).wait(), v2, 300*time.Millisecond)
		allGet(t, before.wait(), value("k", 1), 300*time.Millisecond)
		f.stores("k", v2)
		time.Sleep(2 * time.Second)
		for _, n := range f.nodes {
			gets(t, n, "k", v2)
			gets(t, n, "doubted0", value("doubted0", 1))
		}
		equal(t, "loads", f.queries("k"), 2)
		equal(t, "loads of the other key", f.queries("doubted0"), 1)
	})
}

// Nor does it matter whether the message could be sent at all.
func TestB58_ADeleteThatCannotBeToldKeepsTheOldRowOutOfTheSameNode(t *testing.T) {
	inBubbleWithEars(t, 1, hours(), func(t *testing.T, f *fleet, _ ears) {
		n := f.nodes[0]
		f.query = takes(300 * time.Millisecond)
		before := start(t.Context(), 10, "k", n)
		time.Sleep(100 * time.Millisecond)
		v2 := f.write("k")
		refused := n.faults.Fail(isMessage, nil)
		untold(t, n.Delete(t.Context(), "k"), f.options.LocalTTL)
		f.never("k", value("k", 1))
		allGet(t, start(t.Context(), 10, "k", n).wait(), v2, 300*time.Millisecond)
		allGet(t, before.wait(), value("k", 1), 300*time.Millisecond)
		f.stores("k", v2)
		equal(t, "loads", f.queries("k"), 2)
		refused.Clear()
	})
}

// The deletes come at any moment before and after the end of the other node's load.
func TestB59_ADeleteWhoseMessageIsLostRevokesTheLoadOnAnotherNode(t *testing.T) {
	whateverGetsLost(t, 3, hours(), func(t *testing.T, f *fleet, bound time.Duration, lose func(func())) {
		f.query = takes(300 * time.Millisecond)
		rounds := soak(10, 1000)
		var keys []string
		var before calls
		var after sync.WaitGroup
		for i := range rounds {
			keys = append(keys, fmt.Sprint("k", i))
			before.running.Go(func() {
				if pass(t.Context(), rand.N(350*time.Millisecond)) == nil {
					before.get(t.Context(), f.nodes[0], fmt.Sprint("k", i))
				}
			})
		}
		time.Sleep(350 * time.Millisecond)
		banned := map[string]string{}
		for _, key := range keys {
			f.write(key)
			banned[f.nodes[0].RedisKey(key)] = value(key, 1)
		}
		var lost time.Time
		lose(func() { must(t, f.nodes[1].Delete(t.Context(), keys...)); lost = time.Now() })
		f.neverAny(banned)
		for _, key := range keys {
			after.Go(func() { gets(t, f.nodes[1], key, value(key, 2)) })
		}
		after.Wait()
		for _, g := range before.wait() {
			must(t, g.err)
		}
		time.Sleep(bound - time.Since(lost))
		for _, n := range f.nodes {
			for _, key := range keys {
				gets(t, n, key, value(key, 2))
			}
		}
	})
}

// neverAny is never for many, by Redis key.
func (f *fleet) neverAny(values map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.banned = values
}

func TestB60_ASetWhoseMessageIsLostOutlivesTheOlderLoad(t *testing.T) {
	for setter, who := range []string{"on the loading node", "on another node"} {
		t.Run(who, func(t *testing.T) {
			whateverGetsLost(t, 2, hours(), func(t *testing.T, f *fleet, _ time.Duration, lose func(func())) {
				f.query = takes(300 * time.Millisecond)
				loading := start(t.Context(), 10, "k", f.nodes[0])
				time.Sleep(100 * time.Millisecond)
				v2 := f.write("k")
				lose(func() { must(t, f.nodes[setter].Set(t.Context(), "k", v2)) })
				f.never("k", value("k", 1))
				f.stores("k", v2)
				gets(t, f.nodes[setter], "k", v2)
				time.Sleep(250 * time.Millisecond)
				for _, n := range f.nodes {
					gets(t, n, "k", v2)
				}
				for _, g := range loading.wait() {
					if g.err != nil || g.value != v2 && g.value != value("k", 1) {
						t.Errorf("a waiter got %q, %v", g.value, g.err)
					}
				}
				time.Sleep(2 * time.Second)
				for _, n := range f.nodes {
					gets(t, n, "k", v2)
				}
				equal(t, "loads", f.queries("k"), 1)
			})
		})
	}
}

// A Set that cannot be told about is no more than a Delete, and that much is certain here and in Redis.
func TestB60_ASetThatCannotBeToldLeavesNothingOld(t *testing.T) {
	inBubbleWithEars(t, 2, hours(), func(t *testing.T, f *fleet, _ ears) {
		f.query = takes(300 * time.Millisecond)
		loading := start(t.Context(), 10, "k", f.nodes[1])
		time.Sleep(100 * time.Millisecond)
		v2 := f.write("k")
		refused := f.nodes[0].faults.Fail(isMessage, nil)
		untold(t, f.nodes[0].Set(t.Context(), "k", v2), f.options.LocalTTL)
		f.never("k", value("k", 1))
		gets(t, f.nodes[0], "k", v2)
		loading.wait()
		gets(t, f.nodes[1], "k", v2) // its commit was refused, so there is no copy
		refused.Clear()
	})
}

// As in the case, but the second node deletes what the first is loading, and the message is lost.
func TestB26_AHolderThatWasRevokedUnheardLeavesTheNextOnesLease(t *testing.T) {
	o := hours()
	for _, outcome := range []error{nil, errors.New("no route to the database")} {
		t.Run(fmt.Sprint(outcome), func(t *testing.T) {
			whateverGetsLost(t, 3, o, func(t *testing.T, f *fleet, _ time.Duration, lose func(func())) {
				f.query = func(ctx context.Context, _ string, n int) error {
					if err := pass(ctx, time.Second); err != nil || n > 1 {
						return err
					}
					return outcome
				}
				a := f.at(t.Context(), 0, 0, "k")
				time.Sleep(350 * time.Millisecond)
				v2 := f.write("k")
				lose(func() { must(t, f.nodes[1].Delete(t.Context(), "k")) })
				f.never("k", value("k", 1))
				b := f.at(t.Context(), 0, 1, "k")
				c := f.at(t.Context(), 700*time.Millisecond, 2, "k") // at 1.05 s
				time.Sleep(600 * time.Millisecond)
				key := f.nodes[0].RedisKey("k")
				before := f.lease(key)
				time.Sleep(90 * time.Millisecond)
				if after := f.lease(key); after == "" || after != before {
					t.Errorf("the second holder's lease was %q, and is %q since the first has ended", before, after)
				}
				equal(t, "the first's outcome", errors.Is(a.wait()[0].err, outcome), true)
				allGet(t, b.wait(), v2, time.Second)
				allGet(t, c.wait(), v2, 300*time.Millisecond)
				equal(t, "loads", f.queries("k"), 2)
			})
		})
	}
}

// The reader of the first node hears nothing. What that node deletes itself it never shows again; what the
// other deletes, it shows for 1 s at most.
func TestB64_NothingFromBeforeADeleteIsSeenThoughMessagesAreLost(t *testing.T) {
	var table rows
	var load atomic.Int64
	l := loader.Func(func(_ context.Context, key int) (int64, error) { load.Add(1); return table.load(key), nil })
	o := settings()
	o.LocalTTL, o.TTL, o.RedisTimeout = time.Hour, time.Hour, 10*time.Second
	s := redistest.Shared(t)
	e := &ear{}
	caches := make([]*cache.Cache[int, int64], 2)
	for i, edit := range []func(*redis.Options){e.listening, func(*redis.Options) {}} {
		o.Redis = s.Client(t, edit)
		var err error
		caches[i], err = cache.New("b64lost", l, o)
		must(t, err)
		defer caches[i].Close()
	}
	stop := e.comesAndGoes(20 * time.Millisecond)
	var running sync.WaitGroup
	for worker := range 8 {
		running.Go(func() {
			for range soak(1_000, 200_000) / 8 {
				key := rand.IntN(len(table))
				switch {
				case worker < 2:
					table.remove(t, caches[0], key)
				case worker == 2:
					table[key].version.Add(1)
					must(t, caches[1].Delete(t.Context(), key))
				case worker == 3:
					_, _ = caches[1].Get(t.Context(), key)
				default:
					floor := table[key].floor.Load()
					if v, err := caches[0].Get(t.Context(), key); err != nil || v < floor {
						t.Errorf("got version %d, %v after a delete of %d had returned", v, err, floor)
						return
					}
				}
			}
		})
	}
	running.Wait()
	stop()
	<-time.After(time.Second)
	for key := range table {
		for _, c := range caches {
			v, err := c.Get(t.Context(), key)
			if want := table.load(key); err != nil || v != want {
				t.Errorf("got version %d, %v of key %d, want %d", v, err, key, want)
			}
		}
	}
}

// comesAndGoes is deaf every other period, until stop is called, and from then on.
func (e *ear) comesAndGoes(period time.Duration) (stop func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for i := 0; ; i++ {
			if i%2 == 0 {
				e.silence()
			} else {
				e.restore()
			}
			select {
			case <-tick.C:
			case <-ended:
				return
			}
		}
	})
	return func() { close(ended); running.Wait(); e.restore(); e.silence() }
}
