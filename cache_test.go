// Package levee_test holds the promises of this module, as a service would find them kept or
// broken: through the public API, on a real Redis, with processes for nodes where one is killed
// or stopped. A test is named for the promise that it holds.
package levee_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	goleak.VerifyTestMain(redistest.Main(m, map[string]func(){"node": nodeProcess}))
}

const (
	key = "7"

	// longEnough ends what hangs. No measured time comes near it on a busy machine.
	longEnough = 20 * time.Second
	// noise is what a busy machine may add to a bound. With it the bounds are still below the
	// lease of 10 s, or the LoadTimeout of 30 s, that a caller would wait for instead.
	noise = 5 * time.Second
	// atOnce is the bound for what waits for nobody: it must stay below every lease, load and
	// grace that a caller could wait for instead.
	atOnce = 2 * time.Second
	// lastPoll is the longest pause of a waiter: 500 ms, ±50 %.
	lastPoll = 750 * time.Millisecond
)

// P1. One load: for one key, the fleet runs at most one load that has not been revoked.

func TestP1_AThousandCallersOnTenNodesOnAColdKeyLoadOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 10, held())
	c := f.crowd(key, 100)
	q := f.db.next(t)
	c.arrive(t)
	q.finish()
	c.all(t, "row")
	f.db.queried(t, 1)
}

func TestP1_AThousandCallersOnTenNodesOnAnExpiredKeyLoadOnce(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 10, held(), func(o *cache.Options) { o.TTL = time.Second })
	f.db.write(key, "first")
	c := f.crowd(key, 1)
	f.db.next(t).finish()
	c.all(t, "first")
	f.eventually(t, "the value has expired on every node", func(n *node) bool {
		_, cached, err := n.Peek(t.Context(), key)
		return err == nil && !cached
	})

	f.db.write(key, "second")
	c = f.crowd(key, 100)
	q := f.db.next(t)
	c.arrive(t)
	q.finish()
	c.all(t, "second")
	f.db.queried(t, 2)
}

// The load takes no time here: callers arrive before, while and after it runs.
func TestP1_ACrowdThatArrivesAroundAnInstantLoadLoadsOnce(t *testing.T) {
	t.Parallel()
	const keys = 30
	f := newFleet(t, 10, nil)
	for k := range keys {
		f.crowd(strconv.Itoa(k), 10).all(t, "row")
	}
	f.db.queried(t, keys)
}

func TestP1_LoadsOfAKeyThatExpiresAgainAndAgainNeverOverlap(t *testing.T) {
	t.Parallel()
	const ttl, during = 50 * time.Millisecond, 1500 * time.Millisecond
	f := newFleet(t, 10, takes(10*time.Millisecond), func(o *cache.Options) { o.TTL = ttl })
	began := time.Now()
	var wg sync.WaitGroup
	for _, n := range f.nodes {
		for range 5 {
			wg.Go(func() {
				for time.Since(began) < during {
					if got, err := n.Get(t.Context(), key); err != nil || got != "row" {
						t.Errorf("got %q, %v", got, err)
						return
					}
					pause(t.Context(), rand.N(2*time.Millisecond))
				}
			})
		}
	}
	wg.Wait()
	most := 1 + int(time.Since(began)/ttl)
	if got := f.db.count(); got < 2 || got > most || f.db.peak() != 1 {
		t.Errorf("%d queries, want 2 to %d; at most %d at once, want 1", got, most, f.db.peak())
	}
}

func TestP1_AStaleKeyIsRefreshedByOneLoad(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 10, held(), servedStale)
	f.stale(t, "old")
	f.db.write(key, "new")
	f.crowd(key, 100).all(t, "old")
	q := f.db.next(t)
	f.crowd(key, 100).all(t, "old")
	q.finish()
	f.eventually(t, "every node has the new value", func(n *node) bool { return f.get(t, n, key) == "new" })
	f.db.queried(t, 1)
}

func TestP1_ADeleteRevokesTheLoadAndTheNextCallerStartsANewOne(t *testing.T) {
	t.Parallel()
	for name, who := range map[string]struct {
		deletes int
		asks    []int // the node of the revoked load learns of another's delete later
	}{
		"by the same node": {0, []int{0, 1, 2}},
		"by another node":  {2, []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 3, held())
			f.db.write(key, "old")
			early := f.crowd(key, 10, 0)
			first := f.db.next(t)
			early.arrive(t)
			f.db.write(key, "new")
			must(t, f.nodes[who.deletes].Delete(t.Context(), key))

			later := f.crowd(key, 10, who.asks...)
			second := f.db.next(t)
			later.arrive(t)
			second.finish()
			later.all(t, "new")
			first.finish()
			early.all(t, "old") // they asked before the delete
			f.crowd(key, 10).all(t, "new")
			f.db.queried(t, 2)
		})
	}
}

func TestP1_AValueThatMayNotBeStoredIsLoadedOncePerNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 10, held(), func(o *cache.Options) { o.MaxValueBytes = 10 })
	f.db.write(key, "more than ten bytes")
	c := f.crowd(key, 20)
	first := f.db.next(t)
	c.arrive(t)
	first.finish()
	var own []*query
	for range 9 { // the other nodes' run at once: none waits for another
		own = append(own, f.db.next(t))
	}
	for _, q := range own {
		q.finish()
	}
	c.all(t, "more than ten bytes")
	f.db.queried(t, 10)
}

func TestP1_WaitTimeoutCostsOneMoreLoadPerNodeAndLocalTTL(t *testing.T) {
	t.Parallel()
	const localTTL, others = time.Second, 4
	f := newFleet(t, 1+others, held(), func(o *cache.Options) { o.WaitTimeout = 100 * time.Millisecond })
	holder := f.crowd(key, 10, 0)
	first := f.db.next(t)
	began := time.Now()
	rest := f.crowd(key, 10, 1, 2, 3, 4)
	var own []*query
	for range others {
		own = append(own, f.db.next(t))
	}
	rest.arrive(t)
	for _, q := range own {
		q.finish()
	}
	rest.all(t, "row")
	f.db.queried(t, 1+others)
	if raw := f.raw(t, key); strings.Contains(raw, "row") {
		t.Errorf("Redis has %q: a load beside the holder's was stored", raw)
	}

	// What they loaded is theirs for LocalTTL: no second load within it.
	stop := f.db.finishAll()
	f.crowd(key, 10, 1, 2, 3, 4).all(t, "row")
	stop()
	if got, most := f.db.count(), 1+others*int(1+time.Since(began)/localTTL); got > most {
		t.Errorf("%d queries, want at most %d", got, most)
	}
	first.finish()
	holder.all(t, "row")
	if raw := f.raw(t, key); !strings.Contains(raw, "row") {
		t.Errorf("Redis has %q: the holder's load was not stored", raw)
	}
}

// go-redis repeats by itself what it got no answer to. The lease that the second answer
// confirms is one like any other, also when the load takes longer than RedisTimeout.
func TestP1_ALeaseWhoseFirstAnswerWasLostIsKeptAsLongAsTheLoadRuns(t *testing.T) {
	t.Parallel()
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	db := newDatabase(held())
	short := func(o *cache.Options) { o.RedisTimeout = time.Second }
	a, b := newNode(t, p.Client(t, s, retrySoon), db.read, short), newNode(t, s.Client(t), db.read)
	f := &fleet{nodes: []*node{a, b}, db: db, server: s}
	f.warm(t)

	lost := p.LoseReply(evalsha(a.RedisKey(key)))
	c := f.crowd(key, 1, 0)
	must(t, lost.Wait(t.Context()))
	q := db.next(t)
	c.join(f.crowd(key, 10, 1)).arrive(t)
	pause(t.Context(), 1500*time.Millisecond) // longer than the first attempt could have taken to come
	if n := db.count(); n != 1 {
		t.Errorf("%d queries under way, want 1: the lease was lost", n)
	}
	stop := db.finishAll()
	q.finish()
	c.all(t, "row")
	stop()
}

// Eight callers for each key, close upon one another, so that some come just as the load ends.
func TestP1_TwentyThousandColdKeysAreTwentyThousandLoads(t *testing.T) {
	for name, clients := range map[string]func(*testing.T) redis.UniversalClient{
		"without Redis": func(*testing.T) redis.UniversalClient { return nil },
		"with Redis":    func(t *testing.T) redis.UniversalClient { return redistest.Shared(t).Client(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const keys, callers, goroutines = 20_000, 8, 64
			db := newDatabase(nil)
			n := newNode(t, clients(t), db.read, func(o *cache.Options) { o.LocalMaxBytes = 0 })
			var calls atomic.Int64
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					for {
						i := calls.Add(1) - 1
						if i >= keys*callers {
							return
						}
						if got, err := n.Get(t.Context(), strconv.FormatInt(i/callers, 10)); err != nil || got != "row" {
							t.Errorf("got %q, %v", got, err)
							return
						}
					}
				})
			}
			began := time.Now()
			wg.Wait()
			db.queried(t, keys)
			t.Logf("%d calls in %v", keys*callers, time.Since(began).Round(time.Millisecond))
		})
	}
}

// P2. Nobody waits for what is already there.

func TestP2_NobodyWaitsInsideTheStaleWindowWhileTheRefreshHangs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, held(), servedStale)
	f.stale(t, "old")
	f.db.write(key, "new")
	refreshed := f.serveAtOnce(t, "old", "new")
	q := f.db.next(t) // one node holds the lease, the others see it held
	pause(t.Context(), time.Second)
	f.db.queried(t, 1)
	q.finish()
	t.Logf("longest call %v", refreshed())
}

func TestP2_NobodyWaitsInsideTheStaleWindowWhileTheHolderIsFrozen(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil, servedStale, lease(3*time.Second))
	holder := f.process(t)
	f.stale(t, "old")
	f.db.write(key, "new")
	holder.Send("get")
	expect(t, holder, "loading", "got old")
	holder.Pause()
	refreshed := f.serveAtOnce(t, "old", "new") // until the lease has run out
	longest := refreshed()
	f.db.queried(t, 1)
	t.Logf("longest call %v", longest)
}

func TestP2_ABelievedCopyIsServedWhileRedisIsFrozen(t *testing.T) {
	t.Parallel()
	const soon = 500 * time.Millisecond // well within LocalTTL, 1 s: nothing is looked after yet
	s := redistest.RealOnly(t)
	sent := &commands{}
	client := s.Client(t)
	client.AddHook(sent)
	n := newNode(t, client, newDatabase(nil).read)
	ask := func() (calls int, took time.Duration) {
		began := time.Now()
		must(t, n.Set(t.Context(), key, "mine"))
		must(t, s.Pause())
		defer func() { must(t, s.Resume()) }()
		before := len(sent.list())
		for ; time.Since(began) < soon-100*time.Millisecond; calls++ {
			e, err := n.GetEntry(t.Context(), key)
			if err != nil || e.Value != "mine" || e.Source != cache.SourceLocal || e.State != cache.StateFresh {
				t.Fatalf("got %+v, %v", e, err)
			}
		}
		took = time.Since(began)
		if more := sent.list()[before:]; len(more) > 0 && took < soon {
			t.Errorf("sent %q for a copy that is believed", more)
		}
		return calls, took
	}
	for range 5 { // a stall of the machine may let the time run out
		if calls, took := ask(); took < soon {
			t.Logf("%d calls, no command", calls)
			return
		}
	}
	t.Fatal("the machine is too slow for this test")
}

func TestP2_AStaleCopyThatIsBelievedIsServedWhileRedisIsFrozen(t *testing.T) {
	t.Parallel()
	s := redistest.RealOnly(t)
	db := newDatabase(held())
	n := newNode(t, s.Client(t), db.read, staleAfter(200*time.Millisecond), func(o *cache.Options) { o.LocalTTL = time.Second })
	for range 5 { // a stall of the machine may end the belief
		if servesStale(t, s, n) {
			return
		}
	}
	t.Fatal("the machine is too slow for this test")
}

// servesStale has a stale copy read on a server that is frozen. It is false if the copy was not
// believed for long enough to say something.
func servesStale(t *testing.T, s *redistest.Server, n *node) bool {
	t.Helper()
	before := time.Now()
	must(t, n.Set(t.Context(), key, "mine"))
	must(t, s.Pause())
	defer func() { must(t, s.Resume()) }()
	pause(t.Context(), 250*time.Millisecond)
	for range 100 {
		began := time.Now()
		e, err := n.GetEntry(t.Context(), key)
		if time.Since(before) > 900*time.Millisecond {
			return false
		}
		if took := time.Since(began); err != nil || e.Value != "mine" || e.State != cache.StateStale || took > 500*time.Millisecond {
			t.Fatalf("got %+v, %v after %v", e, err, took)
		}
	}
	return true
}

// P3. A wait ends by an event, not by a poll.

func TestP3_AWaitingNodeIsWokenByTheCommit(t *testing.T) {
	t.Parallel()
	// At the end of such a load a waiter polls every 500 ms, ±50 %.
	const workers, rounds, load, poll = 10, 5, 1200 * time.Millisecond, 500 * time.Millisecond
	waits := &durations{}
	var fleets [workers]*fleet
	for i := range fleets {
		fleets[i] = newFleet(t, 2, held())
	}
	inParallel(t, workers, rounds, func(worker, i int) error {
		f, k := fleets[worker], strconv.Itoa(i)
		holder := f.crowd(k, 1, 0)
		q, err := f.db.await(t.Context())
		if err != nil {
			return err
		}
		waiter := f.crowd(k, 1, 1)
		pause(t.Context(), load)
		ended := time.Now()
		q.finish()
		holder.wait()
		a := waiter.wait()[0]
		waits.add(a.at.Sub(ended))
		if a.err != nil || a.Value != "row" || f.nodes[1].Stats().Waits != int64(i+1) {
			return fmt.Errorf("the waiter got %+v", a)
		}
		return nil
	})
	median, longest := waits.summary()
	t.Logf("from the end of the load to the waiter's return: median %v, longest %v", median, longest)
	if median > poll/4 {
		t.Errorf("median %v: the waiters were not woken", median)
	}
}

func TestP3_WithMessagesLostCallersReturnByThePoll(t *testing.T) {
	// What loses the messages from the first node to the second, and then tells whether it did.
	for name, deafen := range map[string]func(*testing.T, *deafFleet) (deaf func()){
		"the subscription hangs": func(t *testing.T, f *deafFleet) func() {
			h := f.proxy.Hold("subscribe")
			return func() { must(t, h.Wait(t.Context())) }
		},
		"no right to publish": func(t *testing.T, f *deafFleet) func() {
			must(t, f.client.Do(t.Context(), "ACL", "SETUSER", "mute", "resetchannels").Err())
			f.listens = true
			return func() {
				if n := f.nodes[0].Stats().WakeupRefused; n != 1 {
					t.Errorf("%d wake-ups were refused, want 1", n)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newDeafFleet(t)
			deaf := deafen(t, f)
			c := f.crowd(key, 5, 0)
			q := f.db.next(t)
			c.join(f.crowd(key, 5, 1)).arrive(t)
			if f.listens {
				redistest.Eventually(t, longEnough, func() bool {
					return len(f.client.PubSubChannels(t.Context(), "*").Val()) == 1
				}, "the second node listens")
			}
			pause(t.Context(), 500*time.Millisecond) // and asks once more
			ended := time.Now()
			q.finish()
			took := c.all(t, "row").Sub(ended)
			deaf()
			t.Logf("the last caller returned %v after the load", took)
			if took > lastPoll+noise {
				t.Errorf("took %v", took)
			}
			f.db.queried(t, 1)
		})
	}
}

// P4. No stale write: a value is stored only while the lease under which it was loaded is still
// in the entry.

// revocations are all the ways in which an entry, and the lease in it, can be taken from a load of
// the first node.
var revocations = map[string]func(ctx context.Context, f *fleet, key string) error{
	"Delete by the same node": func(ctx context.Context, f *fleet, key string) error { return f.nodes[0].Delete(ctx, key) },
	"Delete by another node":  func(ctx context.Context, f *fleet, key string) error { return f.nodes[1].Delete(ctx, key) },
	"Expire by the same node": func(ctx context.Context, f *fleet, key string) error { return f.nodes[0].Expire(ctx, key) },
	"Expire by another node":  func(ctx context.Context, f *fleet, key string) error { return f.nodes[1].Expire(ctx, key) },
	"Set by the same node":    func(ctx context.Context, f *fleet, key string) error { return f.nodes[0].Set(ctx, key, "new") },
	"Set by another node":     func(ctx context.Context, f *fleet, key string) error { return f.nodes[1].Set(ctx, key, "new") },
	"plain DEL":               func(ctx context.Context, f *fleet, key string) error { return f.client.Del(ctx, f.redisKey(key)).Err() },
	"UNLINK": func(ctx context.Context, f *fleet, key string) error {
		return f.client.Unlink(ctx, f.redisKey(key)).Err()
	},
	"PEXPIRE": func(ctx context.Context, f *fleet, key string) error {
		return f.client.PExpire(ctx, f.redisKey(key), 0).Err()
	},
	"FLUSHALL": func(ctx context.Context, f *fleet, _ string) error { return f.client.FlushAll(ctx).Err() },
	"SET by somebody else": func(ctx context.Context, f *fleet, key string) error {
		return f.client.Set(ctx, f.redisKey(key), "not ours", time.Minute).Err()
	},
}

func TestP4_ALoadThatWasRevokedIsKeptNowhere(t *testing.T) {
	t.Parallel()
	s := redistest.RealOnly(t)
	for name, revoke := range revocations {
		t.Run(name, func(t *testing.T) {
			f := newFleetOn(t, s, 2, held())
			must(t, f.client.FlushAll(t.Context()).Err())
			f.db.write(key, "old")
			c := f.crowd(key, 1, 0)
			q := f.db.next(t)
			c.arrive(t)
			f.revoke(t, q, revoke)
			c.all(t, "old") // its caller asked before
			defer f.db.finishAll()()
			f.crowd(key, 5).all(t, "new")
			if raw := f.raw(t, key); !strings.Contains(raw, "new") {
				t.Errorf("Redis has %q, want the new value", raw)
			}
		})
		t.Run(name+" during a refresh", func(t *testing.T) {
			f := newFleetOn(t, s, 2, held(), servedStale)
			must(t, f.client.FlushAll(t.Context()).Err())
			f.stale(t, "first")
			f.db.write(key, "old")
			f.crowd(key, 1, 0).all(t, "first")
			f.revoke(t, f.db.next(t), revoke)
			defer f.db.finishAll()()
			f.eventually(t, "every node has the new value", func(n *node) bool {
				got := f.get(t, n, key)
				if got == "old" {
					t.Fatal("the revoked value is served")
				}
				return got == "new"
			})
		})
	}
}

func TestP4_WheneverTheRevocationComesTheOldValueIsNotInRedisAfterIt(t *testing.T) {
	t.Parallel()
	const workers, rounds = 4, 20
	s := redistest.RealOnly(t)
	for name, revoke := range revocations {
		t.Run(name, func(t *testing.T) {
			f := newFleetOn(t, s, 3, takesUpTo(3*time.Millisecond))
			must(t, f.client.FlushAll(t.Context()).Err())
			inParallel(t, workers, rounds, func(worker, i int) error {
				k, old := fmt.Sprintf("%d-%d", worker, i), fmt.Sprintf("old-%d-%d.", worker, i)
				f.db.write(k, old)
				loads := f.crowd(k, 1, 0, 2)
				pause(t.Context(), rand.N(5*time.Millisecond))
				f.db.write(k, "new")
				if err := revoke(t.Context(), f, k); err != nil {
					return err
				}
				after := f.client.Get(t.Context(), f.redisKey(k)).Val()
				loads.wait()
				final := f.client.Get(t.Context(), f.redisKey(k)).Val()
				if strings.Contains(after, old) || strings.Contains(final, old) {
					return fmt.Errorf("Redis had %q, then %q", after, final)
				}
				return nil
			})
			for _, k := range f.client.Keys(t.Context(), "*").Val() { // what came behind the answers
				if raw := f.client.Get(t.Context(), k).Val(); strings.Contains(raw, "old-") {
					t.Errorf("in the end Redis has %s = %q", k, raw)
				}
			}
		})
	}
}

// A soft invalidation leaves the old value to be served stale, but never as a fresh one.
func TestP4_ALoadRevokedByExpireDoesNotBecomeFreshAgain(t *testing.T) {
	t.Parallel()
	const workers, rounds = 4, 40
	f := newFleet(t, 3, takesUpTo(3*time.Millisecond), servedStale)
	inParallel(t, workers, rounds, func(worker, i int) error {
		k, old := fmt.Sprintf("%d-%d", worker, i), fmt.Sprintf("old-%d-%d.", worker, i)
		f.db.write(k, old)
		loads := f.crowd(k, 1, 0, 1)
		pause(t.Context(), rand.N(5*time.Millisecond))
		f.db.write(k, "new")
		if err := f.nodes[2].Expire(t.Context(), k); err != nil {
			return err
		}
		loads.wait()
		e, cached, err := f.nodes[2].Peek(t.Context(), k)
		if err != nil || cached && e.Value == old && e.State == cache.StateFresh {
			return fmt.Errorf("after Expire there is %+v, %t, %w", e, cached, err)
		}
		return nil
	})
}

// The late first attempt. A request stays in the network while go-redis's own repetition of it is
// answered, something newer happens, and then it lands.

func TestP4_AFirstAcquireThatLandsLateBringsNoOldValueBackAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	lateFirstAttempts(t, 10, held(), func(ctx context.Context, f *lateFleet, key string) error {
		commitsFirst := rand.N(2) == 0 // and is deleted then; else it commits under a token that has come back
		first, q, err := f.acquireLate(ctx, key, commitsFirst)
		if err != nil {
			return err
		}
		next := f.crowd(key, 1, 2)
		if !commitsFirst {
			q.finish()
			first.wait()
		}
		if q, err = f.db.await(ctx); err != nil {
			return fmt.Errorf("waiting for the next load: %w", err)
		}
		q.finish()
		return f.bounded(next)
	})
}

// As before, but the revoked load goes on for long: nobody waits for it.
func TestP4_AFirstAcquireThatLandsLateHoldsNobodyUpWhileTheRevokedLoadGoesOn(t *testing.T) {
	t.Parallel()
	lateFirstAttempts(t, 3, held(), func(ctx context.Context, f *lateFleet, key string) error {
		first, q, err := f.acquireLate(ctx, key, false)
		if err != nil {
			return err
		}
		next := f.crowd(key, 1, 2)
		second, err := f.db.await(ctx)
		if err != nil {
			return fmt.Errorf("waiting for the next load: %w", err)
		}
		second.finish()
		err = f.bounded(next)
		q.finish()
		first.wait()
		return err
	})
}

func TestP4_AFirstStepOfASetThatLandsLateBringsNoOldValueBackAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	lateFirstAttempts(t, 10, nil, func(ctx context.Context, f *lateFleet, key string) error {
		set := make(chan error, 1)
		go func() { set <- f.nodes[0].Set(ctx, key, "old") }()
		if err := f.repeated(ctx); err != nil {
			<-set
			return err
		}
		if err := unlessUnconfirmed(<-set); err != nil {
			return err
		}
		f.db.write(key, "new")
		if err := f.nodes[1].Set(ctx, key, "new"); err != nil {
			return err
		}
		if err := f.land(ctx); err != nil {
			return err
		}
		return f.bounded(f.crowd(key, 1, 2))
	})
}

func TestP4_ADeleteThatLandsLateBringsNoOldValueBackAndHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	lateFirstAttempts(t, 10, nil, func(ctx context.Context, f *lateFleet, key string) error {
		if err := f.nodes[1].Set(ctx, key, "old"); err != nil {
			return err
		}
		f.db.write(key, "new")
		deleted := make(chan error, 1)
		go func() { deleted <- f.nodes[0].Delete(ctx, key) }()
		if err := f.repeated(ctx); err != nil {
			<-deleted
			return err
		}
		if err := unlessUnconfirmed(<-deleted); err != nil {
			return err
		}
		if err := f.nodes[1].Set(ctx, key, "new"); err != nil {
			return err
		}
		if err := f.land(ctx); err != nil {
			return err
		}
		return f.bounded(f.crowd(key, 1, 2))
	})
}

// P5. No stale read after invalidation.

func TestP5_AGetThatStartsAfterDeleteOrSetReturnedIsNeverOlderOnTheSameNode(t *testing.T) {
	for name, fleet := range map[string]struct {
		size int
		edit func(*cache.Options)
	}{
		"without Redis":                {0, func(*cache.Options) {}},
		"without Redis, no local tier": {0, func(o *cache.Options) { o.LocalMaxBytes = cache.Off }},
		"with Redis":                   {2, func(*cache.Options) {}},
		"with Redis, no local tier":    {2, func(o *cache.Options) { o.LocalMaxBytes = cache.Off }},
		"with Redis, nothing stale":    {2, func(o *cache.Options) { o.StaleWhileRevalidate = cache.Off }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const keys, readers, during = 3, 6, time.Second
			rows := make([]row, keys)
			load := func(ctx context.Context, key string) (int64, error) {
				i, _ := strconv.Atoi(key)
				v := rows[i].version.Load()
				pause(ctx, rand.N(2*time.Millisecond))
				return v, nil
			}
			nodes := versionNodes(t, fleet.size, load, fleet.edit)
			var reads, writes atomic.Int64
			var work sync.WaitGroup
			began := time.Now()
			for _, n := range nodes {
				returned := make([]atomic.Int64, keys) // the version that the node's last write left
				for range readers {
					work.Go(func() {
						for ; time.Since(began) < during; reads.Add(1) {
							k := rand.N(keys)
							least := returned[k].Load()
							if got, err := readSomehow(t.Context(), n, strconv.Itoa(k)); err != nil || got < least {
								t.Errorf("got version %d, %v after version %d was written", got, err, least)
								return
							}
						}
					})
				}
				work.Go(func() {
					for ; time.Since(began) < during; writes.Add(1) {
						k := rand.N(keys)
						rows[k].write(func(version int64) {
							if err := invalidate(t.Context(), n, strconv.Itoa(k), version); err != nil {
								t.Error(err)
								return
							}
							returned[k].Store(version)
						})
						pause(t.Context(), rand.N(time.Millisecond))
					}
				})
			}
			work.Wait()
			t.Logf("%d reads, %d writes", reads.Load(), writes.Load())
		})
	}
}

func TestP5_OtherNodesFollowAtTheLatestAfterLocalTTL(t *testing.T) {
	t.Parallel()
	const localTTL, writes, readers = 500 * time.Millisecond, 60, 4
	var r row
	load := func(ctx context.Context, _ string) (int64, error) {
		v := r.version.Load()
		pause(ctx, rand.N(2*time.Millisecond))
		return v, nil
	}
	nodes := versionNodes(t, 3, load, func(o *cache.Options) { o.TTL, o.LocalTTL = time.Hour, localTTL })
	var past history
	var reads sync.WaitGroup
	var over atomic.Bool
	for _, n := range nodes[1:] {
		for range readers {
			reads.Go(func() {
				for !over.Load() {
					least := past.before(time.Now().Add(-localTTL))
					if got, err := n.Get(t.Context(), key); err != nil || got < least {
						t.Errorf("got version %d, %v; version %d was written over %v ago", got, err, least, localTTL)
						return
					}
					pause(t.Context(), rand.N(time.Millisecond))
				}
			})
		}
	}
	for range writes {
		r.write(func(version int64) {
			must(t, invalidate(t.Context(), nodes[0], key, version))
			past.add(version)
		})
		pause(t.Context(), rand.N(80*time.Millisecond))
	}
	over.Store(true)
	reads.Wait()
}

// Nobody looks at these copies meanwhile, so that none is verified in the background; and of a
// plain DEL no message tells the node that holds them.
func TestP5_ACopyThatNobodyLookedAtIsNotBelievedLongerThanLocalTTL(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(context.Context, *fleet, []string) error{
		"Delete": func(ctx context.Context, f *fleet, keys []string) error { return f.nodes[0].Delete(ctx, keys...) },
		"plain DEL": func(ctx context.Context, f *fleet, keys []string) error {
			var names []string
			for _, k := range keys {
				names = append(names, f.redisKey(k))
			}
			return f.client.Del(ctx, names...).Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			const localTTL = 200 * time.Millisecond
			f := newFleet(t, 2, nil, func(o *cache.Options) { o.LocalTTL = localTTL })
			var keys []string
			for i := range 50 {
				keys = append(keys, strconv.Itoa(i))
				f.crowd(keys[i], 1).all(t, "row")
				f.db.write(keys[i], "new")
			}
			must(t, remove(t.Context(), f, keys))
			pause(t.Context(), localTTL)
			for _, k := range keys {
				f.crowd(k, 1, 1).all(t, "new")
			}
		})
	}
}

// The same holds for a load that another node's Delete has revoked: who comes later than LocalTTL
// must not be given what it brings.
func TestP5_ACallerThatComesLaterThanLocalTTLIsNotGivenARevokedLoad(t *testing.T) {
	t.Parallel()
	const localTTL = 500 * time.Millisecond
	f := newFleet(t, 2, held(), func(o *cache.Options) { o.LocalTTL = localTTL })
	f.db.write(key, "old")
	early := f.crowd(key, 1, 0)
	q := f.db.next(t)
	early.arrive(t)
	f.db.write(key, "new")
	must(t, f.nodes[1].Delete(t.Context(), key))
	pause(t.Context(), localTTL+100*time.Millisecond)
	late := f.crowd(key, 1, 0)
	late.arrive(t)
	stop := f.db.finishAll()
	q.finish()
	early.all(t, "old")
	late.all(t, "new")
	stop()
}

// P6. My cancellation is mine.

func TestP6_TheFirstCallersCancellationLeavesTheLoadAndTheOthersAlone(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		leave func(context.Context) (context.Context, context.CancelFunc)
		want  error
	}{
		"cancelled": {context.WithCancel, context.Canceled},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 500*time.Millisecond)
		}, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 2, held())
			ctx, cancel := end.leave(t.Context())
			defer cancel()
			first := f.crowdWith(ctx, key, 1, 0)
			q := f.db.next(t)
			others := f.crowd(key, 10)
			others.arrive(t)
			if end.want == context.Canceled {
				cancel()
			}
			if a := first.wait()[0]; !errors.Is(a.err, end.want) {
				t.Errorf("the first caller got %+v", a)
			}
			if err := q.ctx.Err(); err != nil {
				t.Errorf("the load was told to end: %v", err)
			}
			if d, ok := q.ctx.Deadline(); !ok || time.Until(d) < 10*time.Second {
				t.Errorf("the load's deadline is in %v, %t: not LoadTimeout", time.Until(d), ok)
			}
			q.finish()
			others.all(t, "row")
			f.db.queried(t, 1)
		})
	}
}

func TestP6_AllCallersMayLeaveAndTheValueIsStoredAllTheSame(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, held())
	ctx, cancel := context.WithCancel(t.Context())
	c := f.crowdWith(ctx, key, 5)
	q := f.db.next(t)
	c.arrive(t)
	cancel()
	for _, a := range c.wait() {
		if !errors.Is(a.err, context.Canceled) {
			t.Errorf("got %+v", a)
		}
	}
	q.finish()
	f.eventually(t, "the value is stored", func(*node) bool { return strings.Contains(f.raw(t, key), "row") })
	f.crowd(key, 5).all(t, "row")
	f.db.queried(t, 1)
}

func TestP6_ACallerThatLeavesWhileItsNodeWaitsForAnotherLeavesTheOthersWaiting(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, held())
	holder := f.crowd(key, 1, 0)
	q := f.db.next(t)
	ctx, cancel := context.WithCancel(t.Context())
	leaver := f.crowdWith(ctx, key, 1, 1) // the first on its node: the wait is its flight's
	leaver.arrive(t)
	others := f.crowd(key, 10, 1)
	others.arrive(t)
	cancel()
	if a := leaver.wait()[0]; !errors.Is(a.err, context.Canceled) {
		t.Errorf("got %+v", a)
	}
	q.finish()
	holder.join(others).all(t, "row")
	f.db.queried(t, 1)
}

func TestP6_ACallerThatComesWithAnEndedContextIsServedWhatIsCachedAndLoadsNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, f.nodes[0].Set(t.Context(), "cached", "mine"))
	f.eventually(t, "what is cached is served", func(n *node) bool {
		_, err := n.Get(t.Context(), "cached") // verified, where the node has just begun to hear of changes
		must(t, err)
		got, err := n.Get(ended, "cached")
		return err == nil && got == "mine"
	})
	if _, err := f.nodes[0].Get(ended, key); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	f.db.queried(t, 0)
}

func TestP6_AnInvalidationWhoseCallerLeavesIsFinished(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 1, nil)
	n := f.nodes[0]
	must(t, n.Set(t.Context(), key, "mine"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.Delete(ended, key); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	f.eventually(t, "the entry is gone", func(*node) bool { return f.raw(t, key) == "" })
}

// P10. A crash costs one lease.

func TestP10_KillingTheHolderCostsTheOthersOneLeaseAndAPoll(t *testing.T) {
	t.Parallel()
	const length, load = 2 * time.Second, 100 * time.Millisecond
	f := newFleet(t, 3, takes(load), lease(length))
	holder := f.process(t)
	holder.Send("get")
	expect(t, holder, "loading")
	c := f.crowd(key, 20)
	c.arrive(t)
	pause(t.Context(), length) // the lease is kept alive meanwhile
	f.db.queried(t, 0)
	killed := time.Now()
	holder.Kill()
	took := c.all(t, "row").Sub(killed)
	t.Logf("the last caller returned %v after the kill; the lease is %v, a poll up to %v, the load %v", took, length, lastPoll, load)
	if took > length+lastPoll+load+noise {
		t.Errorf("took %v", took)
	}
	f.db.queried(t, 1)
}

func TestP10_KillingTheHolderCostsNothingInsideTheStaleWindow(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil, servedStale, lease(3*time.Second))
	holder := f.process(t)
	f.stale(t, "old")
	f.db.write(key, "new")
	holder.Send("get")
	expect(t, holder, "loading", "got old")
	holder.Kill()
	killed := time.Now()
	refreshed := f.serveAtOnce(t, "old", "new")
	longest := refreshed()
	t.Logf("longest call %v; refreshed %v after the kill", longest, time.Since(killed))
	f.db.queried(t, 1)
}

func TestP10_TheLateCommitOfAHolderThatWasStoppedIsRefused(t *testing.T) {
	t.Parallel()
	const length = time.Second
	f := newFleet(t, 2, nil, lease(length))
	holder := f.process(t)
	holder.Send("get")
	expect(t, holder, "loading")
	c := f.crowd(key, 5)
	c.arrive(t)
	f.db.write(key, "new")
	stopped := time.Now()
	holder.Pause()
	took := c.all(t, "new").Sub(stopped)
	if took > length+lastPoll+noise {
		t.Errorf("took %v", took)
	}
	f.db.queried(t, 1)

	holder.Send("finish") // it has read the old row before it was stopped
	holder.Resume()
	expect(t, holder, "got old")
	holder.Send("refused")
	expect(t, holder, "1 refused")
	if raw := f.raw(t, key); !strings.Contains(raw, "new") || strings.Contains(raw, "old") {
		t.Errorf("Redis has %q", raw)
	}
	holder.Send("get") // and it is not kept by its own node either
	expect(t, holder, "got new")
	t.Logf("the last caller returned %v after the stop", took)
}

// What a read costs.

func TestAnUncontendedColdMissIsThreeRoundTripsAndPublishesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.RealOnly(t)
	sent := &commands{}
	client := s.Client(t)
	client.AddHook(sent)
	n := newNode(t, client, newDatabase(nil).read)
	other := newNode(t, s.Client(t), newDatabase(nil).read)
	for _, n := range []*node{n, other} { // the first read of a client asks for the clock
		_, err := n.Get(t.Context(), "warm")
		must(t, err)
	}
	before := len(sent.list())
	for i := range 20 {
		e, err := n.GetEntry(t.Context(), strconv.Itoa(i))
		if err != nil || e.Source != cache.SourceLoaded {
			t.Fatalf("got %+v, %v", e, err)
		}
		if got := sent.list()[before:]; !slices.Equal(got, []string{"get", "evalsha", "evalsha"}) {
			t.Fatalf("a cold miss sent %q", got)
		}
		before += 3
	}
	stats := other.client.Info(t.Context(), "commandstats").Val()
	if !strings.Contains(stats, "cmdstat_evalsha:") || strings.Contains(stats, "cmdstat_publish:") {
		t.Errorf("the server has seen:\n%s", stats)
	}

	theirs := &commands{}
	other.client.(*redis.Client).AddHook(theirs)
	e, err := other.GetEntry(t.Context(), "0")
	if got := theirs.list(); err != nil || e.Source != cache.SourceRemote || !slices.Equal(got, []string{"get"}) {
		t.Errorf("a remote hit sent %q: %+v, %v", got, e, err)
	}
	e, err = other.GetEntry(t.Context(), "0")
	if got := theirs.list(); err != nil || e.Source != cache.SourceLocal || len(got) != 1 {
		t.Errorf("a local hit sent %q: %+v, %v", got[1:], e, err)
	}
}

// Helpers: the database.

// database is what the loaders of all nodes of a test stand before. A query reads its row when it
// begins, and brings it when it ends.
type database struct {
	how   ending
	began chan *query

	mu      sync.Mutex // guards what follows
	rows    map[string]string
	queries int
	running map[string]int
	most    int
}

// ending lets a query go on until it should end.
type ending func(ctx context.Context, d *database, q *query)

// query is one load under way.
type query struct {
	ctx context.Context
	end chan struct{}
}

func (q *query) finish() { close(q.end) }

// held queries end when the test says so, or their context does.
func held() ending {
	return func(ctx context.Context, d *database, q *query) {
		select {
		case d.began <- q:
		case <-ctx.Done():
			return
		}
		select {
		case <-q.end:
		case <-ctx.Done():
		}
	}
}

func takes(d time.Duration) ending {
	return func(ctx context.Context, _ *database, _ *query) { pause(ctx, d) }
}

func takesUpTo(d time.Duration) ending {
	return func(ctx context.Context, _ *database, _ *query) { pause(ctx, rand.N(d)) }
}

// newDatabase makes one whose rows are "row" as long as nobody has written them. Without an
// ending its queries take no time.
func newDatabase(how ending) *database {
	return &database{how: how, began: make(chan *query), rows: map[string]string{}, running: map[string]int{}}
}

func (d *database) write(key, row string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows[key] = row
}

// read is the loader.
func (d *database) read(ctx context.Context, key string) (string, error) {
	row := d.begin(key)
	defer d.finish(key)
	if d.how != nil {
		d.how(ctx, d, &query{ctx: ctx, end: make(chan struct{})})
	}
	return row, ctx.Err()
}

func (d *database) begin(key string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queries++
	d.running[key]++
	d.most = max(d.most, d.running[key])
	if row, ok := d.rows[key]; ok {
		return row
	}
	return "row"
}

func (d *database) finish(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running[key]--
}

func (d *database) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.queries
}

// peak is the most queries of one key that were under way at once.
func (d *database) peak() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.most
}

func (d *database) queried(t *testing.T, want int) {
	t.Helper()
	if got := d.count(); got != want {
		t.Errorf("%d queries, want %d", got, want)
	}
}

// next waits for a held query to begin.
func (d *database) next(t *testing.T) *query {
	t.Helper()
	q, err := d.await(t.Context())
	if err != nil {
		t.Fatalf("no query began: %v", err)
	}
	return q
}

func (d *database) await(ctx context.Context) (*query, error) {
	ctx, cancel := context.WithTimeout(ctx, longEnough)
	defer cancel()
	select {
	case q := <-d.began:
		return q, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// finishAll ends all queries that begin from now on, until stop.
func (d *database) finishAll() (stop func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case q := <-d.began:
				q.finish()
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		wg.Wait()
	}
}

// Helpers: the nodes.

// node is one instance of a service: a client of its own, and so a clock and connections, and a
// Cache on it.
type node struct {
	*cache.Cache[string, string]
	client redis.UniversalClient
}

// options are such that nothing happens but what the test is about: values live long, no window
// is drawn, and Redis may take its time on a busy machine without being taken for dead. Memory is
// scarce since the nodes are many.
func options(client redis.UniversalClient, edits ...func(*cache.Options)) cache.Options {
	o := cache.Options{
		Redis:                client,
		TTL:                  time.Hour,
		TTLJitter:            cache.Off,
		StaleWhileRevalidate: cache.Off,
		Lease:                10 * time.Second,
		RedisTimeout:         5 * time.Second,
		LocalMaxBytes:        1 << 20,
	}
	for _, edit := range edits {
		edit(&o)
	}
	return o
}

// servedStale lets an expired value be served as long as the test may run.
func servedStale(o *cache.Options) { o.StaleWhileRevalidate = time.Hour }

// staleAfter lets values grow stale by themselves.
func staleAfter(ttl time.Duration) func(*cache.Options) {
	return func(o *cache.Options) { o.TTL, o.StaleWhileRevalidate = ttl, time.Hour }
}

func lease(d time.Duration) func(*cache.Options) {
	return func(o *cache.Options) { o.Lease = d }
}

func newNode(t *testing.T, client redis.UniversalClient, load func(context.Context, string) (string, error), edits ...func(*cache.Options)) *node {
	t.Helper()
	c, err := cache.New("user", loader.Func(load), options(client, edits...))
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return &node{c, client}
}

// fleet is some nodes on one Redis and one database.
type fleet struct {
	nodes  []*node
	db     *database
	server *redistest.Server
	client *redis.Client // nobody's: for looking at Redis, and for what other programs do to it
	edits  []func(*cache.Options)
}

func newFleet(t *testing.T, size int, how ending, edits ...func(*cache.Options)) *fleet {
	t.Helper()
	return newFleetOn(t, redistest.Shared(t), size, how, edits...)
}

func newFleetOn(t *testing.T, s *redistest.Server, size int, how ending, edits ...func(*cache.Options)) *fleet {
	t.Helper()
	f := &fleet{db: newDatabase(how), server: s, client: s.Client(t), edits: edits}
	for range size {
		f.nodes = append(f.nodes, newNode(t, s.Client(t), f.db.read, edits...))
	}
	return f
}

// deafFleet is two nodes on a server of their own: the first is the user "mute" there, the second
// is behind a proxy.
type deafFleet struct {
	*fleet
	proxy   *redistest.Proxy
	listens bool // the second node's subscription comes through
}

func newDeafFleet(t *testing.T) *deafFleet {
	t.Helper()
	s := redistest.RealOnly(t)
	f := newFleetOn(t, s, 0, held())
	must(t, f.client.Do(t.Context(), "ACL", "SETUSER", "mute", "on", "nopass", "~*", "&*", "+@all").Err())
	p := redistest.NewProxy(t, s.Addr())
	first := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "mute", "any" })
	for _, client := range []*redis.Client{first, p.Client(t, s)} {
		f.nodes = append(f.nodes, newNode(t, client, f.db.read))
	}
	return &deafFleet{fleet: f, proxy: p}
}

func (f *fleet) redisKey(key string) string { return f.nodes[0].RedisKey(key) }

// raw is the entry as it stands in Redis, "" if there is none. Strings are stored as they are.
func (f *fleet) raw(t *testing.T, key string) string {
	t.Helper()
	text, err := f.client.Get(t.Context(), f.redisKey(key)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	return text
}

func (f *fleet) get(t *testing.T, n *node, key string) string {
	t.Helper()
	got, err := n.Get(t.Context(), key)
	must(t, err)
	return got
}

// revoke writes the new row while q brings the old one, revokes q's load, and lets q end: what it
// brings is refused.
func (f *fleet) revoke(t *testing.T, q *query, revoke func(context.Context, *fleet, string) error) {
	t.Helper()
	f.db.write(key, "new")
	must(t, revoke(t.Context(), f, key))
	q.finish()
	redistest.Eventually(t, longEnough, func() bool { return f.nodes[0].Stats().Refused == 1 }, "the commit is refused")
	if raw := f.raw(t, key); strings.Contains(raw, "old") {
		t.Errorf("Redis has %q", raw)
	}
}

// warm lets every node learn Redis's clock, and Redis the scripts.
func (f *fleet) warm(t *testing.T) {
	t.Helper()
	stop := f.db.finishAll()
	defer stop()
	for i, n := range f.nodes {
		f.get(t, n, "warm"+strconv.Itoa(i))
	}
	f.db.mu.Lock()
	defer f.db.mu.Unlock()
	f.db.queries, f.db.most = 0, 0
}

// eventually waits until cond holds for every node.
func (f *fleet) eventually(t *testing.T, what string, cond func(*node) bool) {
	t.Helper()
	redistest.Eventually(t, longEnough, func() bool {
		return !slices.ContainsFunc(f.nodes, func(n *node) bool { return !cond(n) })
	}, what)
}

// stale stores value and expires it: it is stale for every node.
func (f *fleet) stale(t *testing.T, value string) {
	t.Helper()
	must(t, f.nodes[0].Set(t.Context(), key, value))
	must(t, f.nodes[0].Expire(t.Context(), key))
	f.eventually(t, "the value is stale", func(n *node) bool {
		e, cached, err := n.Peek(t.Context(), key)
		return err == nil && cached && e.State == cache.StateStale
	})
}

// serveAtOnce lets callers ask on every node until they get what is new: until then each of
// their calls must be answered at once, with what is old. refreshed waits for that and returns
// the longest call.
func (f *fleet) serveAtOnce(t *testing.T, old, new string) (refreshed func() time.Duration) {
	var longest atomic.Int64
	var wg sync.WaitGroup
	late := time.Now().Add(longEnough)
	for _, n := range f.nodes {
		for range 3 {
			wg.Go(func() {
				for time.Now().Before(late) {
					e, took, err := timedGet(t.Context(), n)
					longest.Store(max(longest.Load(), int64(took)))
					switch {
					case err == nil && e.Value == new:
						return
					case err != nil || e.Value != old || e.State != cache.StateStale || took > atOnce:
						t.Errorf("got %+v, %v after %v", e, err, took)
						return
					}
					pause(t.Context(), time.Millisecond)
				}
				t.Error("the value is never refreshed")
			})
		}
	}
	return func() time.Duration {
		wg.Wait()
		return time.Duration(longest.Load())
	}
}

func timedGet(ctx context.Context, n *node) (cache.Entry[string], time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, atOnce)
	defer cancel()
	began := time.Now()
	e, err := n.GetEntry(ctx, key)
	return e, time.Since(began), err
}

// Helpers: callers.

// crowd is callers of one key that ask at the same time.
type crowd struct {
	answers []answer
	arrived sync.WaitGroup // each caller waits, or has its answer
	done    sync.WaitGroup
	with    []*crowd
}

type answer struct {
	cache.Entry[string]
	err error
	at  time.Time
}

// crowd lets so many callers ask on each of the nodes with these numbers, or on all.
func (f *fleet) crowd(key string, callers int, which ...int) *crowd {
	return f.crowdWith(context.Background(), key, callers, which...)
}

func (f *fleet) crowdWith(ctx context.Context, key string, callers int, which ...int) *crowd {
	if len(which) == 0 {
		for i := range f.nodes {
			which = append(which, i)
		}
	}
	c := &crowd{answers: make([]answer, callers*len(which))}
	c.arrived.Add(len(c.answers))
	start := make(chan struct{})
	for i := range c.answers {
		n := f.nodes[which[i%len(which)]]
		c.done.Go(func() {
			<-start
			c.answers[i] = c.ask(ctx, n, key)
		})
	}
	close(start)
	return c
}

func (c *crowd) ask(ctx context.Context, n *node, key string) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, longEnough)
	defer cancel()
	arrived := sync.OnceFunc(c.arrived.Done)
	defer arrived()
	a.Entry, a.err = n.GetEntry(arrival{ctx, arrived}, key)
	a.at = time.Now()
	return a
}

// arrival is a context that tells when its owner is about to wait: that is when it asks for Done.
type arrival struct {
	context.Context
	arrived func()
}

func (a arrival) Done() <-chan struct{} {
	a.arrived()
	return a.Context.Done()
}

// join makes one crowd of two.
func (c *crowd) join(d *crowd) *crowd {
	c.with = append(c.with, d)
	return c
}

// arrive returns when every caller waits for what it asked for, or has got it.
func (c *crowd) arrive(t *testing.T) {
	t.Helper()
	for _, d := range append(c.with, c) {
		d.arrived.Wait()
	}
}

// wait returns the answers when all are there.
func (c *crowd) wait() (all []answer) {
	for _, d := range append(c.with, c) {
		d.done.Wait()
		all = append(all, d.answers...)
	}
	return all
}

// all wants the same value for everybody, and returns when the last one had it.
func (c *crowd) all(t *testing.T, want string) (last time.Time) {
	t.Helper()
	wrong := 0
	for _, a := range c.wait() {
		if a.err != nil || a.Value != want {
			if wrong++; wrong == 1 {
				t.Errorf("a caller got %+v, want %q", a, want)
			}
		}
		if a.at.After(last) {
			last = a.at
		}
	}
	if wrong > 1 {
		t.Errorf("%d callers in all got something else", wrong)
	}
	return last
}

// inParallel runs rounds of f in each of so many workers. A worker ends with its first error.
func inParallel(t *testing.T, workers, rounds int, f func(worker, round int) error) {
	t.Helper()
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := range rounds {
				if err := f(worker, i); err != nil {
					t.Errorf("worker %d, round %d: %v", worker, i, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Helpers: late first attempts.

// lateTimeout is the first node's RedisTimeout: so long after its sending a request is not-after.
const lateTimeout = 500 * time.Millisecond

// lateFleet is three nodes, of which the first goes through a proxy that keeps a request back.
type lateFleet struct {
	*fleet
	proxy *redistest.Proxy
	late  *redistest.Held
	sent  time.Time // the request that is kept back, or a little later
	waits *durations
}

// lateFirstAttempts runs so many rounds in each of twenty workers. In each the first script that the
// first node sends for the key is kept back; afterwards the old value must not be in Redis.
func lateFirstAttempts(t *testing.T, rounds int, how ending, round func(ctx context.Context, f *lateFleet, key string) error) {
	const workers = 20
	var fleets [workers]*lateFleet
	waits := &durations{}
	for i := range fleets {
		fleets[i] = newLateFleet(t, how)
		fleets[i].waits = waits
	}
	var spoiled atomic.Int64
	inParallel(t, workers, rounds, func(worker, i int) error {
		f := fleets[worker]
		for try := range 10 {
			err := f.try(t.Context(), fmt.Sprintf("%d-%d", i, try), round)
			if !errors.Is(err, errSpoiled) {
				return err
			}
			spoiled.Add(1)
		}
		return errSpoiled
	})
	for _, f := range fleets { // what may have come behind the answers
		if err := f.nothingOld(t.Context()); err != nil {
			t.Error(err)
		}
	}
	median, longest := waits.summary()
	t.Logf("from the sending to the next caller's answer: median %v, longest %v; %d spoiled rounds", median, longest, spoiled.Load())
}

// errSpoiled is a round in which a busy machine has kept the request from being sent: the node
// went on without Redis.
var errSpoiled = errors.New("the request was not sent")

func (f *lateFleet) try(ctx context.Context, key string, round func(ctx context.Context, f *lateFleet, key string) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*longEnough)
	defer cancel()
	f.late = f.proxy.Hold(evalsha(f.redisKey(key)))
	err := round(ctx, f, key)
	if errors.Is(err, errSpoiled) { // what it left is old by right
		return errors.Join(err, f.nodes[1].Delete(ctx, key))
	}
	if err != nil {
		return err
	}
	return f.nothingOld(ctx)
}

func newLateFleet(t *testing.T, how ending) *lateFleet {
	s := redistest.Shared(t)
	p := redistest.NewProxy(t, s.Addr())
	f := newFleetOn(t, s, 0, how)
	first := newNode(t, p.Client(t, s, retrySoon), f.db.read, func(o *cache.Options) { o.RedisTimeout = lateTimeout })
	f.nodes = []*node{first, newNode(t, s.Client(t), f.db.read), newNode(t, s.Client(t), f.db.read)}
	f.warm(t)
	return &lateFleet{fleet: f, proxy: p}
}

// repeated waits until the request is kept back, and breaks its connection: go-redis sends it
// again.
func (f *lateFleet) repeated(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, 2*lateTimeout)
	defer cancel()
	if err := f.late.Wait(soon); err != nil {
		_ = f.late.Release(soon) // it passes if it comes at last
		return errSpoiled
	}
	f.sent = time.Now()
	f.proxy.Cut()
	return nil
}

// acquireLate leaves the first node in a load of the old row, or with that load committed, then a
// Delete, and its first acquire landed after that.
func (f *lateFleet) acquireLate(ctx context.Context, key string, committed bool) (first *crowd, q *query, err error) {
	f.db.write(key, "old")
	first = f.crowd(key, 1, 0)
	if err := f.repeated(ctx); err != nil {
		defer f.db.finishAll()()
		first.wait()
		return nil, nil, err
	}
	if q, err = f.db.await(ctx); err != nil {
		return nil, nil, err
	}
	if committed {
		q.finish()
		first.wait()
	}
	f.db.write(key, "new")
	if err := f.nodes[1].Delete(ctx, key); err != nil {
		return nil, nil, err
	}
	return first, q, f.land(ctx)
}

// land lets the request through: mostly at once, so that Redis still takes it, and sometimes
// too late for that.
func (f *lateFleet) land(ctx context.Context) error {
	if rand.N(5) == 0 {
		pause(ctx, time.Until(f.sent.Add(2*lateTimeout+100*time.Millisecond)))
	}
	return f.late.Release(ctx)
}

// bounded wants the new value for a caller that asked when the late request had landed, and no
// longer after its sending than it could still be executed; the load takes no time.
func (f *lateFleet) bounded(c *crowd) error {
	a := c.wait()[0]
	took := a.at.Sub(f.sent)
	f.waits.add(took)
	if a.err != nil || a.Value != "new" {
		return fmt.Errorf("the next caller got %+v", a)
	}
	if took > lateTimeout+noise {
		return fmt.Errorf("the next caller had its answer %v after the sending", took)
	}
	return nil
}

func (f *lateFleet) nothingOld(ctx context.Context) error {
	keys, err := f.client.Keys(ctx, "*").Result()
	if err != nil {
		return err
	}
	for _, k := range keys {
		if raw := f.client.Get(ctx, k).Val(); strings.Contains(raw, "old") {
			return fmt.Errorf("Redis has %s = %q", k, raw)
		}
	}
	return nil
}

// unlessUnconfirmed lets an invalidation pass that a busy machine has held up for longer than
// RedisTimeout: it said so.
func unlessUnconfirmed(err error) error {
	if _, ok := errors.AsType[*cache.InvalidationError](err); ok {
		return nil
	}
	return err
}

// evalsha is what a script's request has in it and a plain GET has not: something after the key.
func evalsha(redisKey string) string { return redisKey + "\r\n$" }

func retrySoon(o *redis.Options) {
	o.MinRetryBackoff, o.MaxRetryBackoff = time.Millisecond, 2*time.Millisecond
}

// Helpers: versions.

// row is a row of the database of which only its version counts.
type row struct {
	mu      sync.Mutex // makes the order of the invalidations that of the writes
	version atomic.Int64
}

// write writes the row, and then invalidates what is cached of it.
func (r *row) write(invalidate func(version int64)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	invalidate(r.version.Add(1))
}

func invalidate(ctx context.Context, n *cache.Cache[string, int64], key string, version int64) error {
	if rand.N(2) == 0 {
		return n.Delete(ctx, key)
	}
	return n.Set(ctx, key, version)
}

// readSomehow mostly calls Get, and now and then another of the reading methods.
func readSomehow(ctx context.Context, n *cache.Cache[string, int64], key string) (int64, error) {
	switch rand.N(50) {
	case 0:
		return n.Refresh(ctx, key)
	case 1:
		return n.Get(ctx, key, cache.Fresh())
	case 2:
		if e, cached, err := n.Peek(ctx, key); cached || err != nil {
			return e.Value, err
		}
	}
	return n.Get(ctx, key)
}

// versionNodes are nodes of versions that expire soon and are refreshed while they are stale;
// size 0 stands for one without Redis.
func versionNodes(t *testing.T, size int, load func(context.Context, string) (int64, error), edits ...func(*cache.Options)) (nodes []*cache.Cache[string, int64]) {
	t.Helper()
	add := func(client redis.UniversalClient) {
		c, err := cache.New("version", loader.Func(load), options(client, append([]func(*cache.Options){staleAfter(20 * time.Millisecond)}, edits...)...))
		must(t, err)
		t.Cleanup(func() { must(t, c.Close()) })
		nodes = append(nodes, c)
	}
	if size == 0 {
		add(nil)
		return nodes
	}
	s := redistest.Shared(t)
	for range size {
		add(s.Client(t))
	}
	return nodes
}

// history is when which version's invalidation had returned.
type history struct {
	mu       sync.Mutex
	returned []time.Time // of version i+1
}

func (h *history) add(version int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.returned = append(h.returned, time.Now())
}

// before is the last version whose invalidation had returned by then.
func (h *history) before(then time.Time) (version int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := len(h.returned); i > 0; i-- {
		if !h.returned[i-1].After(then) {
			return int64(i)
		}
	}
	return 0
}

// Helpers: processes.

// process starts a node as a process, with the options of the fleet.
func (f *fleet) process(t *testing.T) *redistest.Proc {
	t.Helper()
	o := options(nil, f.edits...)
	p := redistest.Process(t, "node", "NODE_REDIS="+f.server.Addr(), "NODE_DB="+strconv.Itoa(f.server.DB()),
		"NODE_STALE="+strconv.FormatBool(o.StaleWhileRevalidate > 0), "NODE_LEASE="+o.Lease.String())
	expect(t, p, "ready")
	return p
}

// expect wants these lines, in any order.
func expect(t *testing.T, p *redistest.Proc, want ...string) {
	t.Helper()
	var got []string
	for range want {
		got = append(got, p.Line(longEnough))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Fatalf("the process said %q, want %q", got, want)
	}
}

// nodeProcess is a node as a process. It is told what to do by lines: "get"; "finish", which ends
// its queries; "refused", for that counter. All its rows are old.
func nodeProcess() {
	end := make(chan struct{})
	load := func(ctx context.Context, _ string) (string, error) {
		redistest.Say("loading")
		select {
		case <-end:
			return "old", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	db, _ := strconv.Atoi(os.Getenv("NODE_DB"))
	client := redis.NewClient(&redis.Options{Addr: os.Getenv("NODE_REDIS"), DB: db})
	users, err := cache.New("user", loader.Func(load), options(client, environment))
	if err != nil {
		redistest.Say("%v", err)
		return
	}
	redistest.Say("ready")
	for line := range redistest.Input() {
		switch line {
		case "get":
			go func() {
				got, err := users.Get(context.Background(), key)
				if err != nil {
					got = err.Error()
				}
				redistest.Say("got %s", got)
			}()
		case "finish":
			close(end)
		case "refused":
			redistest.Say("%d refused", users.Stats().Refused)
		}
	}
}

// environment sets what the parent has said.
func environment(o *cache.Options) {
	o.Lease, _ = time.ParseDuration(os.Getenv("NODE_LEASE"))
	if os.Getenv("NODE_STALE") == "true" {
		servedStale(o)
	}
}

// Helpers: the rest.

// commands is a hook that remembers the names of what a client sends; a pipeline counts by its
// commands.
type commands struct {
	mu    sync.Mutex
	names []string
}

func (c *commands) note(cmds ...redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range cmds {
		c.names = append(c.names, cmd.Name())
	}
}

func (c *commands) list() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.names)
}

func (c *commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.note(cmd)
		return next(ctx, cmd)
	}
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.note(cmds...)
		return next(ctx, cmds)
	}
}

// durations collects what was measured in several goroutines.
type durations struct {
	mu  sync.Mutex
	all []time.Duration
}

func (d *durations) add(one time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.all = append(d.all, one)
}

// summary may be called once all has been added.
func (d *durations) summary() (median, longest time.Duration) {
	if len(d.all) == 0 {
		return 0, 0
	}
	slices.Sort(d.all)
	return d.all[len(d.all)/2], d.all[len(d.all)-1]
}

// pause lets real time pass: windows and leases end by Redis's clock.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
