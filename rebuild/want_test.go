package rebuild

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

func (n *testNode) goWant(k Key, w Want) call {
	return start(n.t, func() (Answer, error) { return n.Get(n.t.Context(), k, w) })
}

func (n *testNode) want(k Key, w Want) got { return n.goWant(k, w).wait() }

// brings checks what a call got, and when.
func (g got) brings(t *testing.T, value string, state State, took time.Duration) {
	t.Helper()
	equal(t, "value", g.value(), value)
	if g.err == nil {
		equal(t, "state", g.State, state)
	}
	equal(t, "took", g.took, took)
}

// patience is how long the callers of these tests wait, soon a time within it, and late one after.
const (
	patience = 300 * time.Millisecond
	soon     = 200 * time.Millisecond
	late     = 5 * time.Second
)

var patientWant = Want{Wait: patience}

// goBy lets time go by in a bubble.
func goBy(d time.Duration) { time.Sleep(d) }

// staleValues are the ways to have v1 at hand past its time, in a bubble: k is stale on the node
// that is returned.
var staleValues = map[string]struct {
	state State
	make  func(t *testing.T, b *redistest.BubbleServer, db *database, k Key, edit ...func(*Policy)) *testNode
}{
	"in memory, believed": {Stale, func(t *testing.T, b *redistest.BubbleServer, db *database, k Key, edit ...func(*Policy)) *testNode {
		n := newNode(t, b, db, append(edit, func(p *Policy) { p.TTL = p.LocalTTL / 4 })...)
		n.get(k)
		goBy(n.policy.LocalTTL / 2)
		return n
	}},
	"in memory, not believed": {Stale, func(t *testing.T, b *redistest.BubbleServer, db *database, k Key, edit ...func(*Policy)) *testNode {
		n := newNode(t, b, db, append(edit, func(p *Policy) { p.TTL = 5 * time.Second })...)
		n.get(k)
		goBy(6 * time.Second)
		return n
	}},
	"in Redis": {Stale, func(t *testing.T, b *redistest.BubbleServer, db *database, k Key, edit ...func(*Policy)) *testNode {
		short := func(p *Policy) { p.TTL = 5 * time.Second }
		newNode(t, b, db, short).get(k)
		n := newNode(t, b, db, append(edit, short)...)
		goBy(6 * time.Second)
		return n
	}},
	"in Redis, for errors": {IfError, func(t *testing.T, b *redistest.BubbleServer, db *database, k Key, edit ...func(*Policy)) *testNode {
		short := func(p *Policy) { p.TTL, p.Stale = 2*time.Second, 2*time.Second }
		newNode(t, b, db, short).get(k)
		n := newNode(t, b, db, append(edit, short)...)
		goBy(6 * time.Second)
		return n
	}},
	"without Redis": {Stale, func(t *testing.T, _ *redistest.BubbleServer, db *database, k Key, edit ...func(*Policy)) *testNode {
		n := lonelyNode(t, db, edit...)
		n.get(k)
		goBy(n.policy.TTL + time.Second)
		return n
	}},
	"without Redis, for errors": {IfError, func(t *testing.T, _ *redistest.BubbleServer, db *database, k Key, edit ...func(*Policy)) *testNode {
		n := lonelyNode(t, db, edit...)
		n.get(k)
		goBy(n.policy.TTL + n.policy.Stale + time.Second)
		return n
	}},
}

// withStale runs body in a bubble for each way to have something stale at hand. The database has
// v2 by then.
func withStale(t *testing.T, body func(t *testing.T, n *testNode, db *database, k Key, state State), edit ...func(*Policy)) {
	for _, state := range []State{Stale, IfError} {
		withState(t, state, func(t *testing.T, n *testNode, db *database, k Key) { body(t, n, db, k, state) }, edit...)
	}
}

// withState does so for the ways in which it is of one state: served at once, or for errors only.
func withState(t *testing.T, state State, body func(t *testing.T, n *testNode, db *database, k Key), edit ...func(*Policy)) {
	ran := 0
	for situation, tc := range staleValues {
		if tc.state != state {
			continue
		}
		ran++
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				db, k := newDatabase("v1"), keyOf("k")
				n := tc.make(t, b, db, k, edit...)
				db.set("v2")
				body(t, n, db, k)
			})
		})
	}
	if ran == 0 {
		t.Fatalf("nothing has the state %v", state)
	}
}

func TestAPatientCallerGetsTheNewValueIfTheLoadIsQuickEnough(t *testing.T) {
	withStale(t, func(t *testing.T, n *testNode, db *database, k Key, _ State) {
		db.edit(func() { db.takes = soon })
		n.want(k, patientWant).brings(t, "v2", Fresh, soon)
		equal(t, "loads", db.count(), 2)
	})
}

func TestAPatientCallerGetsTheStaleValueWhenItsPatienceEnds(t *testing.T) {
	withStale(t, func(t *testing.T, n *testNode, db *database, k Key, state State) {
		db.edit(func() { db.takes = late })
		n.want(k, patientWant).brings(t, "v1", state, patience)
		n.want(k, patientWant).brings(t, "v1", state, patience) // of its own: the same load goes on
		time.Sleep(late - 2*patience + time.Millisecond)
		n.get(k).brings(t, "v2", Fresh, 0)
		equal(t, "loads", db.count(), 2)
	})
}

// TestAPatientCallerJoinsTheRefreshThatOthersHaveBegun: its patience counts from its own call.
func TestAPatientCallerJoinsTheRefreshThatOthersHaveBegun(t *testing.T) {
	withState(t, Stale, func(t *testing.T, n *testNode, db *database, k Key) { // of the other, others begin none and leave
		db.edit(func() { db.takes = late })
		n.get(k).brings(t, "v1", Stale, 0)
		time.Sleep(late - patience - soon)
		n.want(k, patientWant).brings(t, "v1", Stale, patience)
		n.want(k, patientWant).brings(t, "v2", Fresh, soon)
		equal(t, "loads", db.count(), 2)
	})
}

func TestAPatientCallerGetsTheStaleValueAsSoonAsTheLoadFails(t *testing.T) {
	withStale(t, func(t *testing.T, n *testNode, db *database, k Key, state State) {
		db.edit(func() { db.takes, db.err = soon, errRoute })
		g := n.want(k, patientWant)
		g.brings(t, "v1", state, soon)
		equal(t, "the reason", errors.Is(g.Err, errRoute), true)
		n.want(k, patientWant).brings(t, "v1", state, 0) // the key is left alone
		equal(t, "loads", db.count(), 2)
	})
}

// TestAFullBulkheadHoldsUpAPatientCallerForItsPatienceAlone: a slot that comes free in time is used.
func TestAFullBulkheadHoldsUpAPatientCallerForItsPatienceAlone(t *testing.T) {
	oneSlot := func(p *Policy) { p.MaxLoads = 1 }
	for situation, takes := range map[string]time.Duration{"a slot comes free in time": soon, "none does": late} {
		t.Run(situation, func(t *testing.T) {
			withStale(t, func(t *testing.T, n *testNode, db *database, k Key, state State) {
				db.edit(func() { db.takes = takes })
				slow := n.goGet(keyOf("slow"))
				slow.waits()
				db.edit(func() { db.takes = 0 })
				g := n.want(k, patientWant)
				if takes == soon {
					g.brings(t, "v2", Fresh, soon)
				} else {
					g.brings(t, "v1", state, patience)
				}
				equal(t, "the slow one", slow.wait().value(), "v2")
			}, oneSlot)
		})
	}
}

func TestAPatientCallerWaitsForTheHolderOfTheLeaseOnAnotherNode(t *testing.T) {
	for situation, tc := range map[string]struct {
		edit  func(*database)
		value string
		state State
		took  time.Duration
	}{
		"that is quick enough": {func(db *database) { db.takes = soon }, "v2", Fresh, soon},
		"that is too slow":     {func(db *database) { db.takes = late }, "v1", Stale, patience},
		"that fails":           {func(db *database) { db.takes, db.err = soon, errRoute }, "v1", Stale, soon},
	} {
		for where, hold := range map[string]func(*testNode, Key){
			"and has a copy": func(n *testNode, k Key) { n.get(k) },
			"and has none":   func(*testNode, Key) {},
		} {
			t.Run(situation+" "+where, func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
					db, k := newDatabase("v1"), keyOf("k")
					short := func(p *Policy) { p.TTL = 5 * time.Second }
					holder, n := newNode(t, b, db, short), newNode(t, b, db, short)
					holder.get(k)
					hold(n, k)
					time.Sleep(6 * time.Second)
					db.edit(func() { db.value = "v2"; tc.edit(db) })
					holder.get(k).brings(t, "v1", Stale, 0)
					synctest.Wait() // its refresh runs
					n.want(k, patientWant).brings(t, tc.value, tc.state, tc.took)
					equal(t, "loads", db.count(), 2)
				})
			})
		}
	}
}

// TestAFrozenRedisHoldsUpAPatientCallerForOneRedisTimeoutMore: this node loads by itself, and what it
// holds is not verified for longer than that.
func TestAFrozenRedisHoldsUpAPatientCallerForOneRedisTimeoutMore(t *testing.T) {
	const timeout = 250 * time.Millisecond // testPolicy's
	for situation, tc := range map[string]struct {
		patience, takes time.Duration
		value           string
		state           State
		took            time.Duration
	}{
		"shorter than RedisTimeout":        {timeout / 2, late, "v1", Stale, timeout/2 + timeout},
		"longer, and the load is quick":    {time.Second, soon, "v2", Fresh, timeout + soon},
		"longer, and the load is too slow": {time.Second, late, "v1", Stale, time.Second + timeout},
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				db, k := newDatabase("v1"), keyOf("k")
				n := staleValues["in memory, not believed"].make(t, b, db, k)
				db.edit(func() { db.value, db.takes = "v2", tc.takes })
				b.Freeze()
				defer b.Thaw()
				n.want(k, Want{Wait: tc.patience}).brings(t, tc.value, tc.state, tc.took)
			})
		})
	}
}

// TestAPatientCallerDoesNotWaitLongerWhereTheStaleValueCameFromRedis: it is at hand as soon as it
// has been read, and what Redis is asked after that is a part of the wait.
func TestAPatientCallerDoesNotWaitLongerWhereTheStaleValueCameFromRedis(t *testing.T) {
	const little = 50 * time.Millisecond
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newDatabase("v1"), keyOf("k")
		n := staleValues["in Redis"].make(t, b, db, k)
		hung := n.faults.Hold(redistest.All(redistest.Script(scripts.acquire), redistest.Contains(string(Try))))
		g := n.want(k, Want{Wait: little})
		equal(t, "acquires", hung.Count(), 1)
		g.brings(t, "v1", Stale, little)
	})
}

// TestWhereRedisFreezesAPatientCallerWaitsOneRedisTimeoutMore: until then nobody knows whether the
// stale value was deleted elsewhere.
func TestWhereRedisFreezesAPatientCallerWaitsOneRedisTimeoutMore(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newDatabase("v1"), keyOf("k")
		n := staleValues["in memory, not believed"].make(t, b, db, k)
		holder := newNode(t, b, db, func(p *Policy) { p.TTL = 5 * time.Second })
		db.edit(func() { db.takes = late })
		holder.get(k).brings(t, "v1", Stale, 0)
		synctest.Wait()
		c := n.goWant(k, patientWant)
		time.Sleep(patience / 2)
		b.Freeze()
		defer b.Thaw()
		c.wait().brings(t, "v1", Stale, patience+n.policy.RedisTimeout)
	})
}

// TestWithNothingStaleAtHandPatienceChangesNothing: not for a load, a lease, a slot, or a Redis
// that takes its time. What is held past all its windows is nothing.
func TestWithNothingStaleAtHandPatienceChangesNothing(t *testing.T) {
	oneSlot := func(p *Policy) { p.MaxLoads = 1 }
	for situation, tc := range map[string]func(*testing.T, *redistest.BubbleServer, *database, Key) call{
		"a load": func(t *testing.T, b *redistest.BubbleServer, _ *database, k Key) call {
			return newNode(t, b, newSlow()).goWant(k, patientWant)
		},
		"a load, without Redis": func(t *testing.T, _ *redistest.BubbleServer, _ *database, k Key) call {
			return lonelyNode(t, newSlow()).goWant(k, patientWant)
		},
		"another node's load": func(t *testing.T, b *redistest.BubbleServer, _ *database, k Key) call {
			newNode(t, b, newSlow()).goGet(k).waits()
			return newNode(t, b, newDatabase("wrong")).goWant(k, patientWant)
		},
		"a slot": func(t *testing.T, b *redistest.BubbleServer, db *database, k Key) call {
			n := newNode(t, b, db, oneSlot)
			db.edit(func() { db.takes = late })
			n.goGet(keyOf("slow")).waits()
			db.edit(func() { db.value, db.takes = "v1", 0 })
			return n.goWant(k, patientWant)
		},
		"a load of what was held past all windows": func(t *testing.T, b *redistest.BubbleServer, db *database, k Key) call {
			n := newNode(t, b, db, func(p *Policy) { p.TTL, p.Stale, p.IfError = time.Second, time.Second, time.Second })
			n.get(k)
			time.Sleep(5 * time.Second)
			db.edit(func() { db.value, db.takes = "v1", late })
			return n.goWant(k, patientWant)
		},
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				tc(t, b, newDatabase("v0"), keyOf("k")).wait().brings(t, "v1", Fresh, late)
			})
		})
	}
}

func newSlow() *database {
	db := newDatabase("v1")
	db.takes = late
	return db
}

// slowLine makes each command of n take so long; not those that make a connection ready, during
// which go-redis holds a lock: nothing moves in a bubble then.
func (n *testNode) slowLine(d time.Duration) {
	n.faults.Delay(redistest.Name("get", "getrange", "evalsha", "eval"), d)
}

// TestALittlePatienceIsNotRedisBeingAway: with a patience below a few round trips a caller is served
// stale in time, but the load that it has begun is the one of the fleet all the same.
func TestALittlePatienceIsNotRedisBeingAway(t *testing.T) {
	const trip, little = 20 * time.Millisecond, 30 * time.Millisecond
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newDatabase("v1"), keyOf("k")
		var nodes []*testNode
		for range 4 {
			nodes = append(nodes, newNode(t, b, db, func(p *Policy) { p.TTL = 5 * time.Second }))
		}
		for _, n := range nodes {
			n.get(k)
		}
		time.Sleep(6 * time.Second)
		db.edit(func() { db.value, db.takes = "v2", soon })
		var calls []call
		for _, n := range nodes {
			n.slowLine(trip)
			calls = append(calls, n.goWant(k, Want{Wait: little}))
		}
		for _, c := range calls {
			c.wait().brings(t, "v1", Stale, little+trip) // it is verified
		}
		time.Sleep(late)
		equal(t, "loads", db.count(), 2)
		equal(t, "what the fleet has", newNode(t, b, newDatabase("wrong")).get(k).value(), "v2")
		for _, n := range nodes {
			equal(t, "calls without Redis", n.Counts.RedisErrors.Load(), 0)
		}
	})
}

// TestALittlePatienceDoesNotServeWhatIsNotStale: a copy that is past all windows, and one that has
// been deleted elsewhere, are not served, and not loaded beside the fleet, since there was no time
// to ask.
func TestALittlePatienceDoesNotServeWhatIsNotStale(t *testing.T) {
	const trip, little = 20 * time.Millisecond, 10 * time.Millisecond
	for situation, tc := range map[string]struct {
		edit func(*Policy)
		wait time.Duration
	}{
		"past all windows":                  {func(p *Policy) { p.TTL, p.Stale, p.IfError = time.Second, time.Second, time.Second }, 5 * time.Second},
		"fresh, and replaced on other node": {func(*Policy) {}, 2 * time.Second},
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				db, k := newDatabase("v1"), keyOf("k")
				n, other := newNode(t, b, db, tc.edit), newNode(t, b, db)
				n.get(k)
				time.Sleep(tc.wait) // it is not believed any more
				must(t, other.set(k, "v2"))
				n.slowLine(trip)
				g := n.want(k, Want{Wait: little})
				equal(t, "value", g.value(), "v2")
				equal(t, "source", g.Source, Remote)
				equal(t, "loads", db.count(), 1)
			})
		})
	}
}

func TestFreshWinsOverPatience(t *testing.T) {
	both := Want{Fresh: true, Wait: patience}
	t.Run("the load is slow", func(t *testing.T) {
		withStale(t, func(t *testing.T, n *testNode, db *database, k Key, _ State) {
			db.edit(func() { db.takes = late })
			n.want(k, both).brings(t, "v2", Fresh, late)
		})
	})
	t.Run("the load fails", func(t *testing.T) {
		withStale(t, func(t *testing.T, n *testNode, db *database, k Key, _ State) {
			db.edit(func() { db.takes, db.err = soon, errRoute })
			g := n.want(k, both)
			equal(t, "error", errors.Is(g.err, errRoute), true)
			equal(t, "took", g.took, soon)
		})
	})
	t.Run("Redis is slow", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
			db, k := newDatabase("v1"), keyOf("k")
			n := staleValues["in memory, not believed"].make(t, b, db, k)
			other := newNode(t, b, db)
			must(t, other.set(k, "v2"))
			n.slowLine(20 * time.Millisecond)
			g := n.want(k, Want{Fresh: true, Wait: 10 * time.Millisecond})
			equal(t, "value", g.value(), "v2")
			equal(t, "source", g.Source, Remote)
		})
	})
}

// TestCallersWithDifferentPatienceDoNotShareIt.
func TestCallersWithDifferentPatienceDoNotShareIt(t *testing.T) {
	withStale(t, func(t *testing.T, n *testNode, db *database, k Key, state State) {
		db.edit(func() { db.takes = late })
		short, long := n.goWant(k, patientWant), n.goWant(k, Want{Wait: 2 * patience})
		short.wait().brings(t, "v1", state, patience)
		long.wait().brings(t, "v1", state, 2*patience)
		if state == Stale {
			n.get(k).brings(t, "v1", Stale, 0)
		}
		equal(t, "loads", db.count(), 2)
	})
}

var noStore = Want{NoStore: true}

// leftNothing checks that neither Redis nor the node's memory holds anything of k.
func (n *testNode) leftNothing(b *redistest.BubbleServer, k Key) {
	n.t.Helper()
	synctest.Wait()
	equal(n.t, "kept", n.kept(k), "")
	equal(n.t, "in Redis", b.Mini().Exists(k.Redis), false)
}

func TestNoStoreIsServedWhatIsCachedAndKeepsNothingOfIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newDatabase("v1"), keyOf("k")
		n, other := newNode(t, b, db), newNode(t, b, db)
		other.get(k)
		for range 2 {
			g := n.want(k, noStore)
			g.brings(t, "v1", Fresh, 0)
			equal(t, "source", g.Source, Remote)
			equal(t, "kept", n.kept(k), "")
		}
		equal(t, "source where it is in memory", other.want(k, noStore).Source, Local)
		equal(t, "loads", db.count(), 1)
	})
}

func TestNoStoreIsServedStaleAndBeginsNoRefresh(t *testing.T) {
	withState(t, Stale, func(t *testing.T, n *testNode, db *database, k Key) {
		for range 3 {
			n.want(k, noStore).brings(t, "v1", Stale, 0)
			time.Sleep(lastPause)
		}
		equal(t, "loads", db.count(), 1)
		n.get(k).brings(t, "v1", Stale, 0) // others do
		synctest.Wait()
		equal(t, "loads after another's call", db.count(), 2)
	})
}

// TestNoStoreBeginsNoRefreshWhereRedisIsAway: the stale copy is served after RedisTimeout.
func TestNoStoreBeginsNoRefreshWhereRedisIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newDatabase("v1"), keyOf("k")
		n := staleValues["in memory, not believed"].make(t, b, db, k)
		db.set("v2")
		b.Freeze()
		defer b.Thaw()
		n.want(k, noStore).brings(t, "v1", Stale, n.policy.RedisTimeout)
		time.Sleep(time.Second)
		equal(t, "loads", db.count(), 1)
		equal(t, "kept", n.kept(k), "v1")
	})
}

// TestNoStoreBeginsNoEarlyRefresh: with this beta, which no cache can be given, any other call in the
// last fifth begins one.
func TestNoStoreBeginsNoEarlyRefresh(t *testing.T) {
	for situation, tc := range map[string]func(*testing.T, *redistest.BubbleServer, *database, Key, func(*Policy)) *testNode{
		"in memory": func(t *testing.T, b *redistest.BubbleServer, db *database, k Key, edit func(*Policy)) *testNode {
			n := newNode(t, b, db, edit, func(p *Policy) { p.TTL = p.LocalTTL / 2 })
			n.get(k)
			time.Sleep(n.policy.TTL * 9 / 10)
			return n
		},
		"in Redis": func(t *testing.T, b *redistest.BubbleServer, db *database, k Key, edit func(*Policy)) *testNode {
			n := newNode(t, b, db, edit)
			newNode(t, b, db).get(k)
			time.Sleep(n.policy.TTL * 9 / 10)
			return n
		},
		"without Redis": func(t *testing.T, _ *redistest.BubbleServer, db *database, k Key, edit func(*Policy)) *testNode {
			n := lonelyNode(t, db, edit)
			n.get(k)
			time.Sleep(n.policy.TTL * 9 / 10)
			return n
		},
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				db, k := newDatabase("v1"), keyOf("k")
				db.takes = time.Millisecond
				n := tc(t, b, db, k, func(p *Policy) { p.EarlyRefresh = 1e6 })
				n.want(k, noStore).brings(t, "v1", Fresh, 0)
				synctest.Wait()
				equal(t, "loads", db.count(), 1)
				n.get(k).brings(t, "v1", Fresh, 0)
				synctest.Wait()
				equal(t, "loads after another's call", db.count(), 2)
				time.Sleep(time.Second)
			})
		})
	}
}

func TestNoStoreJoinsALoadThatWillBeStored(t *testing.T) {
	for situation, nodes := range map[string]func(*testing.T, *redistest.BubbleServer, *database) (loading, asking *testNode){
		"of this node": func(t *testing.T, b *redistest.BubbleServer, db *database) (loading, asking *testNode) {
			n := newNode(t, b, db)
			return n, n
		},
		"of another node": func(t *testing.T, b *redistest.BubbleServer, db *database) (loading, asking *testNode) {
			return newNode(t, b, db), newNode(t, b, db)
		},
		"without Redis": func(t *testing.T, _ *redistest.BubbleServer, db *database) (loading, asking *testNode) {
			n := lonelyNode(t, db)
			return n, n
		},
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				db, k := newSlow(), keyOf("k")
				loading, asking := nodes(t, b, db)
				first := loading.goGet(k)
				time.Sleep(time.Second)
				asking.want(k, noStore).brings(t, "v1", Fresh, late-time.Second)
				equal(t, "the load", first.wait().value(), "v1")
				equal(t, "loads", db.count(), 1)
				equal(t, "kept where it was loaded", loading.kept(k), "v1")
				if asking != loading {
					equal(t, "kept where it was only asked for", asking.kept(k), "")
				}
			})
		})
	}
}

// TestNoStoreLoadsForItselfAlone: of two that load, neither joins the other, and nothing is left of
// either.
func TestNoStoreLoadsForItselfAlone(t *testing.T) {
	for situation, nodeIn := range map[string]func(*testing.T, *redistest.BubbleServer, *database) *testNode{
		"with Redis":    func(t *testing.T, b *redistest.BubbleServer, db *database) *testNode { return newNode(t, b, db) },
		"without Redis": func(t *testing.T, _ *redistest.BubbleServer, db *database) *testNode { return lonelyNode(t, db) },
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				db, k := newSlow(), keyOf("k")
				n := nodeIn(t, b, db)
				first, second := n.goWant(k, noStore), n.goWant(k, noStore)
				first.waits()
				n.leftNothing(b, k) // not even a lease
				equal(t, "loads at once", db.most, 2)
				time.Sleep(late)
				first.now().brings(t, "v1", Fresh, late)
				second.now().brings(t, "v1", Fresh, late)
				n.leftNothing(b, k)
				equal(t, "loads", db.count(), 2)
				equal(t, "commits", n.Counts.Commits.Load(), 0)
				equal(t, "counted as not storable", n.Counts.Unstorable.Load(), 0)
			})
		})
	}
}

// TestOthersDoNotJoinALoadThatStoresNothing: they begin their own, which NoStore then joins.
func TestOthersDoNotJoinALoadThatStoresNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newSlow(), keyOf("k")
		n, other := newNode(t, b, db), newNode(t, b, db)
		alone := n.goWant(k, noStore)
		time.Sleep(time.Second)
		db.set("v2")
		second := n.goGet(k)
		time.Sleep(time.Second)
		third := n.goWant(k, noStore)
		alone.wait().brings(t, "v1", Fresh, late)
		equal(t, "kept of the private load", n.everKept("v1"), false)
		second.wait().brings(t, "v2", Fresh, late)
		third.wait().brings(t, "v2", Fresh, late-time.Second)
		equal(t, "kept", n.kept(k), "v2")
		equal(t, "what another node gets", other.get(k).value(), "v2")
		equal(t, "loads", db.count(), 2)
	})
}

// TestAPrivateLoadThatEndsLastChangesNothing of what was kept meanwhile.
func TestAPrivateLoadThatEndsLastChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newSlow(), keyOf("k")
		n := newNode(t, b, db)
		alone := n.goWant(k, noStore)
		alone.waits()
		db.edit(func() { db.value, db.takes = "v2", soon })
		n.get(k).brings(t, "v2", Fresh, soon)
		alone.wait().brings(t, "v1", Fresh, late)
		synctest.Wait()
		equal(t, "kept", n.kept(k), "v2")
		equal(t, "ever kept", n.everKept("v1"), false)
		equal(t, "what another node gets", newNode(t, b, newDatabase("wrong")).get(k).value(), "v2")
	})
}

// TestNoStoreLeavesWhatIsOnlyForErrors as it is: it loads for itself, and the others' value is not
// replaced.
func TestNoStoreLeavesWhatIsOnlyForErrors(t *testing.T) {
	withState(t, IfError, func(t *testing.T, n *testNode, db *database, k Key) {
		db.edit(func() { db.takes = soon })
		kept := n.kept(k)
		n.want(k, noStore).brings(t, "v2", Fresh, soon)
		equal(t, "kept", n.kept(k), kept)
		db.edit(func() { db.takes = late })
		n.want(k, noStore).brings(t, "v1", IfError, grace)
		db.edit(func() { db.takes, db.err = 0, errRoute })
		n.want(k, noStore).brings(t, "v1", IfError, 0)
		time.Sleep(late)
		equal(t, "kept", n.kept(k), kept)
		equal(t, "ever kept", n.everKept("v2"), false)
	})
}

// TestNoStoreLeavesNoLeaseBehindWhereTheNodeThatItWaitedForHasGone: the next caller does not wait for
// anything.
func TestNoStoreLeavesNoLeaseBehindWhereTheNodeThatItWaitedForHasGone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newSlow(), keyOf("k")
		holder, n, next := newNode(t, b, db), newNode(t, b, db), newNode(t, b, db)
		holder.goGet(k).waits()
		waited := n.faults.Delay(redistest.All(redistest.Script(scripts.acquire), redistest.Contains(string(Wait))), time.Nanosecond)
		alone := n.goWant(k, noStore)
		alone.waits()
		time.Sleep(time.Microsecond) // it has asked to be woken
		holder.Close()
		time.Sleep(time.Microsecond)
		alone.waits()
		equal(t, "asked to be woken", waited.Count() > 0, true)
		equal(t, "loads", db.count(), 2)
		n.leftNothing(b, k)
		time.Sleep(time.Second)
		db.edit(func() { db.value, db.takes = "v2", 0 })
		next.get(k).brings(t, "v2", Fresh, 0)
		equal(t, "value", alone.wait().value(), "v1")
		equal(t, "kept", n.kept(k), "")
	})
}

// TestNoStoreTellsOfAFailureAndLeavesTheKeyToOthers: Redis remembers nothing of it.
func TestNoStoreTellsOfAFailureAndLeavesTheKeyToOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newDatabase("v1"), keyOf("k")
		n, other := newNode(t, b, db), newNode(t, b, db)
		db.edit(func() { db.err = errRoute })
		equal(t, "error", errors.Is(n.want(k, noStore).err, errRoute), true)
		n.leftNothing(b, k)
		db.edit(func() { db.err = nil })
		other.get(k).brings(t, "v1", Fresh, 0)
	})
}

var skipLocal = Want{SkipLocal: true}

func TestSkipLocalSeesWhatAnotherNodeHasJustStored(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newDatabase("v1"), keyOf("k")
		n, other := newNode(t, b, db), newNode(t, b, db)
		n.get(k)
		must(t, other.set(k, "v2"))
		equal(t, "a plain call", n.get(k).value(), "v1")
		g := n.want(k, skipLocal)
		g.brings(t, "v2", Fresh, 0)
		equal(t, "source", g.Source, Remote)
		g = n.get(k)
		g.brings(t, "v2", Fresh, 0)
		equal(t, "source of the next plain call", g.Source, Local)
		equal(t, "loads", db.count(), 1)
	})
}

func TestSkipLocalSeesWhatAnotherNodeHasJustDeleted(t *testing.T) {
	for situation, w := range map[string]Want{
		"alone":        skipLocal,
		"and NoStore":  {SkipLocal: true, NoStore: true},
		"and Fresh":    {SkipLocal: true, Fresh: true},
		"and patience": {SkipLocal: true, Wait: patience},
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				db, k := newDatabase("v1"), keyOf("k")
				n, other := newNode(t, b, db), newNode(t, b, db)
				n.get(k)
				must(t, other.delete(k))
				db.set("v2")
				equal(t, "a plain call", n.get(k).value(), "v1")
				g := n.want(k, w)
				g.brings(t, "v2", Fresh, 0)
				equal(t, "source", g.Source, Loaded)
				if !w.NoStore {
					equal(t, "the next plain call", n.get(k).value(), "v2")
					equal(t, "the other node", other.get(k).value(), "v2")
				}
				equal(t, "loads", db.count(), 2)
			})
		})
	}
}

func TestSkipLocalJoinsALoadOfThisNode(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newSlow(), keyOf("k")
		n := newNode(t, b, db)
		first := n.goGet(k)
		time.Sleep(time.Second)
		n.want(k, skipLocal).brings(t, "v1", Fresh, late-time.Second)
		equal(t, "the first", first.wait().value(), "v1")
		equal(t, "loads", db.count(), 1)
	})
}

func TestWithoutRedisSkipLocalChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newDatabase("v1"), keyOf("k")
		n := lonelyNode(t, db)
		n.want(k, skipLocal).brings(t, "v1", Fresh, 0)
		g := n.want(k, skipLocal)
		g.brings(t, "v1", Fresh, 0)
		equal(t, "source", g.Source, Local)
		time.Sleep(n.policy.TTL + time.Second)
		db.set("v2")
		n.want(k, skipLocal).brings(t, "v1", Stale, 0)
		synctest.Wait()
		equal(t, "loads", db.count(), 2)
	})
}

// TestWithRedisAwaySkipLocalFallsBackToMemoryOrTheLoader, having lost RedisTimeout.
func TestWithRedisAwaySkipLocalFallsBackToMemoryOrTheLoader(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newDatabase("v1"), keyOf("k")
		n := newNode(t, b, db)
		n.get(k)
		db.set("v2")
		b.Freeze()
		defer b.Thaw()
		g := n.want(k, skipLocal)
		g.brings(t, "v1", Fresh, n.policy.RedisTimeout)
		equal(t, "source", g.Source, Local)
		g = n.want(keyOf("another"), skipLocal)
		equal(t, "value of a key that is not there", g.value(), "v2")
		equal(t, "source", g.Source, Loaded)
		equal(t, "loads", db.count(), 2)
	})
}

// TestASkipLocalCallSeesWhatWasStoredBeforeIt: it joins no read that has begun already.
func TestASkipLocalCallSeesWhatWasStoredBeforeIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db, k := newDatabase("v1"), keyOf("k")
		n, other := newNode(t, b, db), newNode(t, b, db)
		n.get(k)
		h := n.holdReply(redistest.Name("get"))
		first := n.goWant(k, skipLocal)
		h.wait()
		synctest.Wait()
		must(t, other.set(k, "v2"))
		later := []call{n.goWant(k, skipLocal), n.goWant(k, skipLocal)}
		for _, c := range later {
			c.waits()
		}
		h.release()
		first.wait()
		for _, c := range later {
			equal(t, "value of a call that began after the Set", c.wait().value(), "v2")
		}
	})
}
