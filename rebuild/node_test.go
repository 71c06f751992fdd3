package rebuild

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

func TestAColdKeyIsLoadedOnceHoweverManyNodesAsk(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		db.takes = 5 * time.Second
		var calls []call
		for range 5 {
			n := newNode(t, b, db)
			for range 20 {
				calls = append(calls, n.goGet(k))
			}
		}
		for _, c := range calls {
			g := c.wait()
			equal(t, "value", g.value(), "v1")
			equal(t, "took", g.took, 5*time.Second) // the waiters are woken by the commit
		}
		equal(t, "loads", db.count(), 1)
	})
}

// Between its look and its flight another flight may have ended.
func TestB02_ALateArriverIsServedFromMemoryWithoutACommand(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k := keyOf("k")
		a := newNode(t, b, newDatabase("v1"))
		equal(t, "value", a.get(k).value(), "v1")
		asked := a.faults.Delay(redistest.Any, 0)
		g := a.get(k)
		equal(t, "value", g.value(), "v1")
		equal(t, "source", g.Source, Local)
		equal(t, "commands", asked.Count(), 0)
	})
}

func TestAColdMissTakesThreeRoundTripsAndARemoteHitOne(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		n, other := newNode(t, b, db), newNode(t, b, db)
		count := func(n *testNode) *redistest.Rule { return n.faults.Delay(redistest.Any, time.Nanosecond) }
		miss := count(n)
		equal(t, "value", n.get(k).value(), "v1")
		equal(t, "commands of a cold miss", miss.Count(), 3)
		equal(t, "value again", n.get(k).Source, Local)
		equal(t, "commands of a local hit", miss.Count(), 3)
		hit := count(other)
		equal(t, "source", other.get(k).Source, Remote)
		equal(t, "commands of a remote hit", hit.Count(), 1)
	})
}

func TestAStaleValueIsServedAtOnceWhileOneNodeLoads(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		nodes := []*testNode{newNode(t, b, db), newNode(t, b, db), newNode(t, b, db)}
		nodes[0].get(k)
		time.Sleep(time.Minute + time.Second)
		db.edit(func() { db.value, db.takes = "v2", 10*time.Second })
		for range 20 {
			for _, n := range nodes {
				g := n.get(k)
				equal(t, "value", g.value(), "v1")
				equal(t, "state", g.State, Stale)
				equal(t, "took", g.took, 0)
			}
			time.Sleep(100 * time.Millisecond)
		}
		equal(t, "loads", db.count(), 2)
		time.Sleep(10 * time.Second)
		for _, n := range nodes {
			equal(t, "value after it", n.get(k).value(), "v2")
		}
		equal(t, "loads", db.count(), 2)
		equal(t, "most at once", db.most, 1)
	})
}

func TestAValueForErrorsIsServedWhereTheLoadFailsOrTakesASecond(t *testing.T) {
	for situation, tc := range map[string]struct {
		edit  func(*database)
		value string
		state State
		took  time.Duration
		err   error
	}{
		"it succeeds":     {func(db *database) { db.takes = grace - time.Millisecond }, "v2", Fresh, grace - time.Millisecond, nil},
		"it fails":        {func(db *database) { db.err = errRoute }, "v1", IfError, 0, errRoute},
		"it takes longer": {func(db *database) { db.takes = 5 * time.Second }, "v1", IfError, grace, nil},
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				n, waiter := newNode(t, b, db), newNode(t, b, db)
				n.get(k)
				time.Sleep(10 * time.Minute)
				db.edit(func() { db.value = "v2"; tc.edit(db) })
				first := n.goGet(k)
				synctest.Wait()
				second := waiter.goGet(k) // has nothing in its memory, but Redis has
				for what, c := range map[string]call{"the loading node": first, "the other": second} {
					g := c.wait()
					equal(t, what+": value", g.value(), tc.value)
					equal(t, what+": state", g.State, tc.state)
					equal(t, what+": took", g.took, tc.took)
					if tc.err != nil && g.Err == nil || tc.err == nil && g.Err != nil {
						t.Errorf("%s: the reason is %v", what, g.Err)
					}
				}
				equal(t, "loads", db.count(), 2)
			})
		})
	}
}

// TestAValueForErrorsIsServedWhereThereIsNoSlotToRefreshIt: the second of grace is also the
// longest wait for a slot.
func TestAValueForErrorsIsServedWhereThereIsNoSlotToRefreshIt(t *testing.T) {
	for situation, nodeIn := range map[string]func(*testing.T, *redistest.BubbleServer, *database, ...func(*Policy)) *testNode{
		"with Redis": newNode,
		"without Redis": func(t *testing.T, _ *redistest.BubbleServer, db *database, edit ...func(*Policy)) *testNode {
			return lonelyNode(t, db, edit...)
		},
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				n := nodeIn(t, b, db, func(p *Policy) { p.MaxLoads = 1 })
				n.get(k)
				time.Sleep(10 * time.Minute)
				db.edit(func() { db.takes = 10 * time.Second })
				slow := n.goGet(keyOf("slow"))
				synctest.Wait()
				g := n.get(k)
				equal(t, "value", g.value(), "v1")
				equal(t, "state", g.State, IfError)
				equal(t, "took", g.took, grace)
				equal(t, "the slow one", slow.wait().value(), "v1")
			})
		})
	}
}

func TestACallThatGetsNoSlotInTimeIsToldSo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db := newDatabase("v1")
		db.takes, db.deaf = time.Hour, true
		n := newNode(t, b, db, func(p *Policy) { p.MaxLoads, p.LoadTimeout, p.Lease = 1, 10*time.Second, 30*time.Second })
		first := n.goGet(keyOf("first"))
		synctest.Wait()
		n.policy.LoadTimeout = 5 * time.Second
		g := n.get(keyOf("second"))
		equal(t, "error", errors.Is(g.err, ErrOverloaded), true)
		equal(t, "took", g.took, 5*time.Second)
		equal(t, "no lease was taken", rigOf(t, b, keyOf("second")).raw(), "")
		equal(t, "the first", errors.Is(first.wait().err, ErrLoadTimeout), true)
		time.Sleep(time.Hour) // the deaf load ends
	})
}

func TestALoadThatOverrunsIsAbandonedAndItsKeyLeftAloneForTheBackoff(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("late")
		db.takes, db.deaf = time.Minute, true
		n, other := newNode(t, b, db), newNode(t, b, db)
		first := n.goGet(k)
		synctest.Wait()
		second := other.goGet(k)
		g := first.wait()
		equal(t, "error", errors.Is(g.err, ErrLoadTimeout), true)
		equal(t, "took", g.took, 30*time.Second)
		e, ok := errors.AsType[*BackoffError](second.wait().err)
		if !ok || !e.Remote || e.Message != ErrLoadTimeout.Error() {
			t.Fatalf("the other node got %v", e)
		}
		e, ok = errors.AsType[*BackoffError](n.get(k).err)
		if !ok || e.Remote || !errors.Is(e, ErrLoadTimeout) {
			t.Fatalf("the same node got %v", e)
		}
		equal(t, "abandoned", n.Counts.AbandonedNow.Load(), 1)
		db.edit(func() { db.value, db.takes = "v2", 0 })
		time.Sleep(time.Second)
		equal(t, "value after the back-off", other.get(k).value(), "v2")
		time.Sleep(time.Minute) // the late result is dropped
		equal(t, "value after that", n.get(k).value(), "v2")
		equal(t, "abandoned, when it has ended", n.Counts.AbandonedNow.Load(), 0)
	})
}

func TestAFailingDatabaseIsAskedOncePerBackoffByAllNodesTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		db.err = errRoute
		nodes := []*testNode{newNode(t, b, db), newNode(t, b, db), newNode(t, b, db)}
		for range 600 { // a minute
			for _, n := range nodes {
				if g := n.get(k); g.err == nil {
					t.Fatalf("got %q", g.value())
				}
			}
			time.Sleep(100 * time.Millisecond)
		}
		// 0.5, 1, 2, 4 s, and then 5 s each, shortened by up to a fifth.
		between(t, "loads", db.count(), 4+52500/5200, 5+60000/4000)
	})
}

func TestNotFoundIsBelievedAndNeverServedStale(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		db.err = fmt.Errorf("query: %w", loader.ErrNotFound)
		n, other := newNode(t, b, db), newNode(t, b, db)
		for range 2 {
			equal(t, "loaded", n.get(k).value(), "not found")
			equal(t, "on another node", other.get(k).value(), "not found")
		}
		equal(t, "loads", db.count(), 1)
		db.edit(func() { db.err = nil })
		time.Sleep(5*time.Second - time.Millisecond)
		equal(t, "at the end of its window", other.get(k).value(), "not found")
		time.Sleep(time.Millisecond)
		equal(t, "after it", n.get(k).value(), "v1")
		equal(t, "after it, elsewhere", other.get(k).value(), "v1")
		equal(t, "failures", n.Counts.LoadErrors.Load(), 0)
	})
}

func TestNotFoundThatIsNotToBeKeptIsNot(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		db.err = loader.ErrNotFound
		n := newNode(t, b, db, func(p *Policy) { p.NegativeTTL = 0 })
		equal(t, "value", n.get(k).value(), "not found")
		db.edit(func() { db.err = nil })
		equal(t, "value at once", n.get(k).value(), "v1")
	})
}

func TestACallersContextEndsOnlyItsOwnWait(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		db.takes = 10 * time.Second
		n := newNode(t, b, db)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		impatient := start(t, func() (Answer, error) { return n.Get(ctx, k, Want{}) }) // whose call starts the load
		synctest.Wait()
		patient := n.goGet(k)
		g := impatient.wait()
		equal(t, "error", errors.Is(g.err, context.DeadlineExceeded), true)
		equal(t, "took", g.took, time.Second)
		equal(t, "the other", patient.wait().value(), "v1")
		equal(t, "kept", n.kept(k), "v1")
		equal(t, "loads", db.count(), 1)
	})
}

func TestACallWithAContextThatHasEndedStartsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db := newDatabase("v1")
		n := newNode(t, b, db)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := n.Get(ctx, keyOf("k"), Want{})
		equal(t, "error", errors.Is(err, context.Canceled), true)
		synctest.Wait()
		equal(t, "loads", db.count(), 0)
	})
}

func TestALoadThatAsksForItsOwnKeyIsToldSo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		n := newNode(t, b, newDatabase("v1"))
		k, l := keyOf("k"), keyOf("l")
		ctx := n.inside(n.inside(t.Context(), k, false), l, false)
		for _, own := range []Key{k, l} {
			if _, err := n.Get(ctx, own, Want{}); !errors.Is(err, ErrRecursive) {
				t.Errorf("Get: %v", err)
			}
			if _, err := n.Refresh(ctx, own); !errors.Is(err, ErrRecursive) {
				t.Errorf("Refresh: %v", err)
			}
		}
		a, err := n.Get(ctx, keyOf("another"), Want{})
		must(t, err)
		equal(t, "another key", a.Copy.(*text).value, "v1")
		equal(t, "the same key on another node", newNode(t, b, newDatabase("v1")).loading(ctx, k), false)
		equal(t, "inside a load in the background", n.loading(n.inside(ctx, l, true), k), false)
	})
}

func TestALoadInsideALoadNeedsNoSlot(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		n := newNode(t, b, newDatabase("v1"), func(p *Policy) { p.MaxLoads = 1 })
		giveBack, err := n.slots.take(t.Context())
		must(t, err)
		defer giveBack()
		_, err = n.Get(n.inside(t.Context(), keyOf("outer"), false), keyOf("inner"), Want{})
		must(t, err)
	})
}

func TestAfterWaitTimeoutANodeLoadsOnceForItselfAndStoresNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("own")
		n := newNode(t, b, db, func(p *Policy) { p.WaitTimeout = 2 * time.Second })
		r := rigOf(t, b, k)
		start := r.acquire("B", asking{lease: time.Minute}).Entry.Start
		var calls []call
		for range 5 {
			calls = append(calls, n.goGet(k))
		}
		for _, c := range calls {
			g := c.wait()
			equal(t, "value", g.value(), "own")
			equal(t, "took", g.took, 2*time.Second)
		}
		equal(t, "loads", db.count(), 1)
		equal(t, "the holder's lease", r.entry().Token, token("B"))
		equal(t, "times without Redis", n.Counts.RedisErrors.Load(), 0)
		equal(t, "commit of the holder", r.commit("B", start, "v1", storing{}).Status, statusCommitted)
		equal(t, "within LocalTTL", n.get(k).value(), "own")
		time.Sleep(n.policy.LocalTTL)
		equal(t, "after it", n.get(k).value(), "v1")
	})
}

// P5: its entry was deleted elsewhere, and somebody holds the lease for long.
func TestAfterWaitTimeoutACopyIsServedOnlyIfItIsStillBelieved(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		waits := func(p *Policy) { p.WaitTimeout = 500 * time.Millisecond }
		n, holder := newNode(t, b, db, waits), newNode(t, b, db)
		equal(t, "value", n.get(k).value(), "v1")
		db.set("v2")
		must(t, holder.delete(k))
		resume := db.pause()
		held := holder.goGet(k)
		held.waits()
		db.edit(func() { db.stop = nil })
		time.Sleep(n.policy.LocalTTL)
		g := n.get(k)
		equal(t, "value", g.value(), "v2")
		equal(t, "wait", g.took, n.policy.WaitTimeout)
		resume()
		equal(t, "the holder's", held.now().value(), "v2")
	})
}

func TestARefreshWaitsNoLongerThanWaitTimeoutEither(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("own")
		n := newNode(t, b, db, func(p *Policy) { p.WaitTimeout = 2 * time.Second })
		rigOf(t, b, k).acquire("B", asking{lease: time.Minute})
		g := n.goRefresh(k).wait()
		equal(t, "value", g.value(), "own")
		equal(t, "took", g.took, 2*time.Second)
		equal(t, "times without Redis", n.Counts.RedisErrors.Load(), 0)
	})
}

func TestWithoutWaitTimeoutAWaitEndsWhenHoldersComeAndGoWithNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k := keyOf("k")
		n := newNode(t, b, newDatabase("own"))
		r := rigOf(t, b, k)
		r.acquire("B", asking{lease: time.Hour})
		g := n.get(k)
		equal(t, "error", errors.Is(g.err, ErrWaitTimeout), true)
		equal(t, "took", g.took, n.policy.LoadTimeout+n.policy.Lease)
	})
}

func TestAFreshEntryOfAnotherCodecIsLoadedBesideAndNotOverwritten(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		n := newNode(t, b, db)
		r := rigOf(t, b, k)
		h := r.valued(time.Minute, 2*time.Minute, time.Hour)
		h.Codec = 'z'
		r.put(h, "theirs")
		before := r.raw()
		for range 3 {
			equal(t, "value", n.get(k).value(), "v1")
		}
		equal(t, "what stands there", r.raw(), before)
		equal(t, "loads", db.count(), 1)
		equal(t, "counted", n.Counts.OtherCodec.Load(), 1)
		time.Sleep(time.Minute + time.Second)
		equal(t, "value when it is stale", n.get(k).value(), "v1")
		synctest.Wait()
		equal(t, "what stands there then", r.entry().Payload, "v1")
	})
}

// P8 also where Redis keeps no memory of failures: a load without a lease tells it nothing.
func TestAFailureBesideAnEntryIsRememberedByItsNode(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		db.err = errors.New("the database is away")
		n, r := newNode(t, b, db), rigOf(t, b, k)
		h := r.valued(time.Minute, 2*time.Minute, time.Hour)
		h.Codec = 'z'
		r.put(h, "theirs")
		for range 10 {
			if err := n.get(k).err; !errors.Is(err, db.err) {
				t.Fatalf("got %v", err)
			}
		}
		equal(t, "loads", db.count(), 1)
		equal(t, "answered from the back-off", n.Counts.Backoffs.Load(), 9)
		time.Sleep(n.policy.Backoff)
		if err := n.get(k).err; !errors.Is(err, db.err) {
			t.Fatalf("got %v", err)
		}
		equal(t, "loads after the back-off", db.count(), 2)
	})
}

func TestWhatCannotBeReadIsRebuiltAndCounted(t *testing.T) {
	for situation, tc := range map[string]struct {
		put     func(*rig)
		counted func(*Counts) int64
	}{
		"somebody else's text": {func(r *rig) { r.putRaw("theirs", time.Hour) }, func(c *Counts) int64 { return c.Undecodable.Load() }},
		"an entry that was cut": {func(r *rig) {
			r.put(r.valued(time.Minute, time.Minute, time.Hour), "v0")
			r.putRaw(r.raw()[:HeaderSize+1], time.Hour)
		}, func(c *Counts) int64 { return c.Undecodable.Load() }},
		"the entry of another key": {func(r *rig) {
			h := r.valued(time.Minute, time.Minute, time.Hour)
			h.Hash = r.key.Hash + 1
			r.putRaw(string(h.format()), time.Hour)
		}, func(c *Counts) int64 { return c.WrongKey.Load() }},
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				n := newNode(t, b, db)
				r := rigOf(t, b, k)
				tc.put(r)
				equal(t, "value", n.get(k).value(), "v1")
				equal(t, "counted", tc.counted(&n.Counts), 1)
				equal(t, "what stands there", r.entry().Payload, "v1")
			})
		})
	}
}

func TestAKeyOfAnotherTypeIsLoadedBesideAndLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		n := newNode(t, b, db)
		must(t, n.client.RPush(t.Context(), k.Redis, "theirs").Err())
		for range 3 {
			equal(t, "value", n.get(k).value(), "v1")
		}
		equal(t, "loads", db.count(), 1)
		for what, err := range map[string]error{"Delete": n.delete(k), "Set": n.set(k, "v2"), "Expire": n.expire(k)} {
			if !errors.Is(err, errForeign) {
				t.Errorf("%s: %v", what, err)
			}
		}
		equal(t, "length of the list", n.client.LLen(t.Context(), k.Redis).Val(), 1)
	})
}

func TestAValueThatMayNotBeStoredIsLoadedByEachNodeForItself(t *testing.T) {
	for situation, value := range map[string]string{"too large": "a value of many bytes", "not encodable": unencodable} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase(value)
				small := func(p *Policy) { p.MaxValueBytes = 4 }
				n, other := newNode(t, b, db, small), newNode(t, b, db, small)
				for range 2 {
					equal(t, "value", n.get(k).value(), value)
					equal(t, "value elsewhere", other.get(k).value(), value)
				}
				equal(t, "kind", rigOf(t, b, k).entry().Kind, KindPass)
				err := n.set(k, value)
				equal(t, "Set tells of it", err != nil, value == unencodable)
				equal(t, "what a Set leaves", rigOf(t, b, k).raw(), "")
			})
		})
	}
}

// TestARefusalThatRunsOutWhileItIsToldIsStillAnError: the memory of the failure ends while the
// call that it refuses makes up its error.
func TestARefusalThatRunsOutWhileItIsToldIsStillAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase("v1")
		db.err = errRoute
		n := lonelyNode(t, db, func(p *Policy) {
			p.Redact = func(err error) string {
				time.Sleep(p.Backoff)
				return err.Error()
			}
		})
		n.get(keyOf("k"))
		if g := n.get(keyOf("k")); !errors.Is(g.err, errRoute) {
			t.Fatalf("got %+v", g)
		}
	})
}

func TestARefreshAndALoadMayKeepAtTheSameMoment(t *testing.T) { // the race detector looks on
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db := newDatabase("v1")
		n := newNode(t, b, db)
		var wg sync.WaitGroup
		for i := range 20 {
			k := keyOf(fmt.Sprint("k", i%3))
			wg.Go(func() { n.goGet(k).wait() })
			wg.Go(func() { n.goRefresh(k).wait() })
			wg.Go(func() { n.goFresh(k).wait() })
		}
		wg.Wait()
	})
}

func TestRefreshesOfOneKeyTakeTurnsAndShareTheNextOne(t *testing.T) {
	for situation, nodeIn := range map[string]func(*testing.T, *redistest.BubbleServer, *database) *testNode{
		"with Redis": connected, "without Redis": lonely,
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				db.takes = time.Second
				n := nodeIn(t, b, db)
				first := n.goRefresh(k)
				synctest.Wait()
				db.set("v2")
				var rest []call
				for range 10 {
					rest = append(rest, n.goRefresh(k))
				}
				equal(t, "the first", first.wait().value(), "v1")
				for _, c := range rest {
					equal(t, "those after it", c.wait().value(), "v2")
				}
				equal(t, "loads", db.count(), 2)
				equal(t, "most at once", db.most, 1)
			})
		})
	}
}

func TestPeekLooksAndNeverLoads(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		n, other := newNode(t, b, db), newNode(t, b, db)
		_, ok, err := n.Peek(t.Context(), k)
		must(t, err)
		equal(t, "there", ok, false)
		other.get(k)
		a, ok, err := n.Peek(t.Context(), k)
		must(t, err)
		equal(t, "there", ok, true)
		equal(t, "value", got{Answer: a}.value(), "v1")
		equal(t, "source", a.Source, Remote)
		time.Sleep(90 * time.Second)
		a, ok, err = n.Peek(t.Context(), k)
		must(t, err)
		equal(t, "stale and there", ok && a.State == Stale, true)
		synctest.Wait()
		equal(t, "loads", db.count(), 1)
		equal(t, "token", rigOf(t, b, k).entry().Token, "")
	})
}

func TestAWaitingNodeUsesNoPooledConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db := newDatabase("v1")
		db.takes = 10 * time.Second
		holder := newNode(t, b, db)
		client := b.Link().Client(t, func(o *redis.Options) { o.PoolSize, o.MaxRetries = 1, -1 })
		waiter := nodeOn(t, client, db)
		waiter.warm()
		var calls []call
		for i := range 10 {
			k := keyOf(fmt.Sprint("k", i))
			holder.goGet(k)
			synctest.Wait()
			calls = append(calls, waiter.goGet(k))
		}
		synctest.Wait()
		began := time.Now()
		must(t, client.Ping(t.Context()).Err())
		equal(t, "a ping meanwhile took", time.Since(began), 0)
		for _, c := range calls {
			equal(t, "value", c.wait().value(), "v1")
		}
		equal(t, "loads", db.count(), 10)
	})
}
