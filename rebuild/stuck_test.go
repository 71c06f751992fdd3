package rebuild

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// onBoth runs body in a bubble, on a node with Redis and on one without.
func onBoth(t *testing.T, body func(*testing.T, *testNode, *database), edit ...func(*Policy)) {
	t.Run("with Redis", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
			db := newDatabase("v1")
			body(t, newNode(t, b, db, edit...), db)
		})
	})
	t.Run("without Redis", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			db := newDatabase("v1")
			body(t, lonelyNode(t, db, edit...), db)
		})
	})
}

// overloaded checks that a call was refused, and when.
func (g got) overloaded(t *testing.T, took time.Duration) {
	t.Helper()
	if !errors.Is(g.err, ErrOverloaded) || g.took != took {
		t.Fatalf("got %q after %v, want ErrOverloaded after %v", g.value(), g.took, took)
	}
}

// crowd starts calls for so many keys of their own, one after the other.
func (n *testNode) crowd(name string, many int) (calls []call) {
	for i := range many {
		calls = append(calls, n.goGet(keyOf(fmt.Sprint(name, " ", i))))
		synctest.Wait()
	}
	return calls
}

// outlast lets the deaf loads of a bubble end before the test does.
func outlast(t *testing.T) { t.Cleanup(func() { time.Sleep(time.Hour) }) }

func TestTenLoadsForEachSlotMayWaitAndTheNextIsRefusedAtOnce(t *testing.T) {
	const slots = 2
	onBoth(t, func(t *testing.T, n *testNode, db *database) {
		db.takes = time.Second
		for round := range 2 { // places in the queue come free again
			calls := n.crowd(fmt.Sprint("round ", round), slots+queuePer*slots)
			for range 3 {
				n.get(keyOf("one more")).overloaded(t, 0)
			}
			for i, c := range calls {
				c.wait().brings(t, "v1", Fresh, time.Duration(1+i/slots)*time.Second) // in turn
			}
			equal(t, "at once", db.most, slots)
			equal(t, "loads", db.count(), (round+1)*len(calls))
		}
	}, func(p *Policy) { p.MaxLoads = slots })
}

// TestThoseWhoLeaveTheQueueLeaveTheirPlaces: their LoadTimeout is over.
func TestThoseWhoLeaveTheQueueLeaveTheirPlaces(t *testing.T) {
	onBoth(t, func(t *testing.T, n *testNode, db *database) {
		outlast(t)
		db.takes, db.deaf = time.Hour, true
		first := n.goGet(keyOf("first"))
		synctest.Wait()
		n.policy.LoadTimeout = 5 * time.Second
		for range 2 {
			calls := n.crowd("in the queue", queuePer)
			n.get(keyOf("one more")).overloaded(t, 0)
			for _, c := range calls {
				c.wait().overloaded(t, 5*time.Second)
			}
		}
		first.waits()
	}, func(p *Policy) { p.MaxLoads, p.Lease = 1, 30*time.Second })
}

// TestWithAFullQueueWhoeverHasSomethingStaleIsServedItAtOnce: also where it is only for errors, and
// where the caller would have waited.
func TestWithAFullQueueWhoeverHasSomethingStaleIsServedItAtOnce(t *testing.T) {
	withStale(t, func(t *testing.T, n *testNode, db *database, k Key, state State) {
		db.edit(func() { db.takes = late })
		calls := n.crowd("others", 1+queuePer)
		for _, w := range []Want{{}, patientWant, noStore} {
			n.want(k, w).brings(t, "v1", state, 0)
		}
		n.want(k, Want{Fresh: true}).overloaded(t, 0)
		for _, c := range calls {
			equal(t, "in the queue", c.wait().value(), "v2")
		}
	}, func(p *Policy) { p.MaxLoads, p.LoadTimeout = 1, time.Minute })
}

// TestABackgroundRefreshThatFindsNoSlotIsDroppedAndCounted, once, and the stale value goes on being
// served. What is in the foreground still gets a slot at once.
func TestABackgroundRefreshThatFindsNoSlotIsDroppedAndCounted(t *testing.T) {
	onBoth(t, func(t *testing.T, n *testNode, db *database) {
		keys := []Key{keyOf("a"), keyOf("b"), keyOf("c")}
		for _, k := range keys {
			n.get(k)
		}
		time.Sleep(n.policy.TTL + time.Second)
		db.edit(func() { db.value, db.takes = "v2", late })
		for _, k := range keys {
			n.get(k).brings(t, "v1", Stale, 0)
			synctest.Wait()
		}
		equal(t, "refreshes", db.count()-len(keys), 1) // a quarter of four
		equal(t, "dropped", n.Counts.Dropped.Load(), 2)
		cold := n.crowd("cold", 3)
		equal(t, "at once", db.most, 4)
		for range 10 {
			for _, k := range keys {
				n.get(k).brings(t, "v1", Stale, 0)
			}
			time.Sleep(100 * time.Millisecond)
		}
		equal(t, "refreshes", db.count()-len(keys)-len(cold), 1)
		for _, c := range cold {
			c.wait().brings(t, "v2", Fresh, late)
		}
		db.edit(func() { db.takes = 0 })
		for _, k := range keys {
			n.get(k)
			time.Sleep(lastPause)
			n.get(k).brings(t, "v2", Fresh, 0)
		}
	}, func(p *Policy) { p.MaxLoads, p.LocalTTL = 4, time.Hour })
}

// TestForegroundLoadsThatWaitForASlotComeBeforeRefreshes: as long as any waits, no refresh takes the
// slot that comes free.
func TestForegroundLoadsThatWaitForASlotComeBeforeRefreshes(t *testing.T) {
	onBoth(t, func(t *testing.T, n *testNode, db *database) {
		k := keyOf("k")
		n.get(k)
		time.Sleep(n.policy.TTL + time.Second)
		db.edit(func() { db.value, db.takes = "v2", time.Second })
		calls := n.crowd("cold", 8)
		done := time.Now().Add(4 * time.Second)
		for time.Now().Before(done.Add(-time.Second)) {
			n.get(k).brings(t, "v1", Stale, 0)
			time.Sleep(10 * time.Millisecond)
		}
		for i, c := range calls {
			c.wait().brings(t, "v2", Fresh, time.Duration(1+i/2)*time.Second)
		}
		n.get(k).brings(t, "v1", Stale, 0)
		time.Sleep(2 * time.Second)
		n.get(k)
		time.Sleep(time.Second + time.Millisecond)
		n.get(k).brings(t, "v2", Fresh, 0)
	}, func(p *Policy) { p.MaxLoads, p.LocalTTL = 2, time.Hour })
}

// TestAWaitForAnotherNodesLoadNeedsNoSlot: what it waits for is no load of this node, however many
// wait here, and whatever is stuck.
func TestAWaitForAnotherNodesLoadNeedsNoSlot(t *testing.T) {
	for situation, occupy := range map[string]func(*testing.T, *testNode, *database, Key){
		"the queue is full": func(_ *testing.T, n *testNode, db *database, _ Key) {
			db.edit(func() { db.takes = 20 * time.Second })
			n.crowd("others", 1+queuePer)
		},
		"all slots are taken": func(_ *testing.T, n *testNode, db *database, _ Key) {
			db.edit(func() { db.takes = 20 * time.Second })
			n.crowd("others", 1)
		},
		"a load of the key is stuck": func(t *testing.T, n *testNode, db *database, k Key) { n.stick(db, k) },
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				n := newNode(t, b, db, func(p *Policy) { p.MaxLoads, p.LoadTimeout = 1, time.Minute })
				occupy(t, n, db, k)
				newNode(t, b, newSlow()).goGet(k).waits()
				n.get(k).brings(t, "v1", Fresh, late)
			})
		})
	}
}

// stick leaves a load of k behind that ignores its context for half an hour, and waits until the key
// is not left alone any more. It is for use in a bubble.
func (n *testNode) stick(db *database, k Key) {
	n.t.Helper()
	outlast(n.t)
	db.edit(func() { db.takes, db.deaf = 30*time.Minute, true })
	g := n.want(k, Want{NoStore: true}) // no lease, so other nodes are not in it
	equal(n.t, "error of "+k.Text, errors.Is(g.err, ErrLoadTimeout), true)
	db.edit(func() { db.takes, db.deaf = 0, false })
	time.Sleep(backoffGrowth * n.policy.Backoff)
}

// many is enough for two stuck loads.
func many(p *Policy) { p.MaxLoads, p.LoadTimeout = 8, time.Second }

func TestOnceManyLoadsAreStuckTheirKeysAloneFailFast(t *testing.T) {
	onBoth(t, func(t *testing.T, n *testNode, db *database) {
		a, b, c := keyOf("a"), keyOf("b"), keyOf("c")
		n.stick(db, a)
		n.get(a).brings(t, "v1", Fresh, 0) // one is not many
		must(t, n.delete(a))
		n.stick(db, b)
		equal(t, "stuck now", n.Counts.AbandonedNow.Load(), 2)
		loads := db.count()
		for _, k := range []Key{a, b} {
			for _, w := range []Want{{}, patientWant, noStore, {Fresh: true}, skipLocal} {
				n.want(k, w).overloaded(t, 0)
			}
			n.goRefresh(k).wait().overloaded(t, 0)
		}
		equal(t, "loads", db.count(), loads)
		equal(t, "a key that is not stuck", n.get(c).value(), "v1")
		must(t, n.set(a, "v2"))
		n.get(a).brings(t, "v2", Fresh, 0) // what is cached is served
		time.Sleep(30 * time.Minute)
		equal(t, "stuck in the end", n.Counts.AbandonedNow.Load(), 0)
		for _, k := range []Key{a, b, c} {
			must(t, n.delete(k))
			n.get(k).brings(t, "v1", Fresh, 0)
		}
	}, many)
}

// TestAStuckKeyThatIsStaleIsServedAtOnce: a refresh that would only get stuck too is dropped.
func TestAStuckKeyThatIsStaleIsServedAtOnce(t *testing.T) {
	withStale(t, func(t *testing.T, n *testNode, db *database, k Key, state State) {
		for i := range quarter(n.policy.MaxLoads) - 1 {
			n.stick(db, keyOf(fmt.Sprint("other ", i)))
		}
		n.stuck.add(k.Text, 1) // as a load of it would; it takes longer than some of the windows
		loads := db.count()
		for _, w := range []Want{{}, patientWant, noStore} {
			n.want(k, w).brings(t, "v1", state, 0)
		}
		synctest.Wait()
		equal(t, "loads", db.count(), loads)
		n.want(k, Want{Fresh: true}).overloaded(t, 0)
		n.stuck.add(k.Text, -1)
		n.want(k, Want{Fresh: true}).brings(t, "v2", Fresh, 0)
	}, func(p *Policy) { p.MaxLoads, p.LoadTimeout, p.Backoff = 8, 100*time.Millisecond, time.Millisecond })
}

// TestABackgroundLoadThatIsAbandonedCountsAsStuck, and its key goes on being served stale.
func TestABackgroundLoadThatIsAbandonedCountsAsStuck(t *testing.T) {
	onBoth(t, func(t *testing.T, n *testNode, db *database) {
		outlast(t)
		k := keyOf("k")
		n.get(k)
		time.Sleep(n.policy.TTL + time.Second)
		db.edit(func() { db.value, db.takes, db.deaf = "v2", 30*time.Minute, true })
		for range 30 { // most of the stale window
			n.get(k).brings(t, "v1", Stale, 0)
			time.Sleep(time.Second)
		}
		equal(t, "loads", db.count(), 2)
		equal(t, "stuck", n.Counts.AbandonedNow.Load(), 1)
		equal(t, "dropped", n.Counts.Dropped.Load() > 0, true)
		db.edit(func() { db.takes = 0 })
		time.Sleep(30 * time.Minute)
		n.get(k).brings(t, "v2", Fresh, 0)
		equal(t, "loads", db.count(), 3)
	}, func(p *Policy) { p.MaxLoads, p.LoadTimeout = 1, time.Second })
}

func TestAQuarterOfTheSlotsMayBeStuckAndAtLeastOne(t *testing.T) {
	for slots, most := range map[int]int{1: 1, 2: 1, 7: 1, 8: 2, 16: 4, 256: 64} {
		s := newStuck(slots)
		for i := range most {
			equal(t, fmt.Sprintf("%d slots, %d stuck", slots, i), s.bars("key 0"), nil)
			s.add(fmt.Sprint("key ", i), 1)
		}
		for i := range most {
			equal(t, fmt.Sprintf("%d slots, all stuck", slots), errors.Is(s.bars(fmt.Sprint("key ", i)), ErrOverloaded), true)
		}
		equal(t, "another key", s.bars("another"), nil)
		s.add("key 0", 1)
		s.add("key 0", -1)
		equal(t, "a key that is stuck once of twice", s.bars("key 0") != nil, true)
		s.add("key 0", -1)
		equal(t, "the keys that are known", len(s.of), most-1)
	}
}
