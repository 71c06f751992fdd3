package rebuild

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// rigOf is the scripts on k over a wire of its own.
func rigOf(t *testing.T, b *redistest.BubbleServer, k Key) *rig {
	r := newRig(t, b.Client(t))
	r.key = k
	return r
}

func TestR03_AGetAfterADeleteDoesNotJoinAFlightThatHasCommittedTheOldValue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		a := newNode(t, b, db)
		commit := a.holdReply(redistest.Script(scripts.commit))
		first := a.goGet(k)
		commit.wait()
		db.set("v2")
		must(t, a.delete(k))
		second := a.goGet(k)
		equal(t, "the new Get", second.now().value(), "v2")
		first.waits()
		commit.release()
		equal(t, "the old Get", first.now().value(), "v1")
		equal(t, "kept", a.kept(k), "v2")
		equal(t, "the next Get", a.get(k).value(), "v2")
		equal(t, "loads", db.count(), 2)
	})
}

func TestR03_AGetAfterADeleteDoesNotJoinALoadThatIsRunning(t *testing.T) {
	for situation, nodeIn := range map[string]func(*testing.T, *redistest.BubbleServer, *database) *testNode{
		"with Redis":    func(t *testing.T, b *redistest.BubbleServer, db *database) *testNode { return newNode(t, b, db) },
		"without Redis": func(t *testing.T, _ *redistest.BubbleServer, db *database) *testNode { return lonelyNode(t, db) },
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				a := nodeIn(t, b, db)
				resume := db.pause()
				first := a.goGet(k)
				first.waits()
				db.set("v2")
				must(t, a.delete(k))
				second := a.goGet(k)
				second.waits()
				resume()
				equal(t, "the new Get", second.now().value(), "v2")
				equal(t, "the old Get", first.now().value(), "v1")
				equal(t, "kept", a.kept(k), "v2")
				equal(t, "loads", db.count(), 2)
			})
		})
	}
}

func TestR04_AReadThatOvertookTheDeleteIsNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v2")
		a := newNode(t, b, db)
		other := newNode(t, b, newDatabase("v1"))
		equal(t, "the other node's Get", other.get(k).value(), "v1")
		sent := a.holdCall(redistest.Script(scripts.remove))
		gone := make(chan error, 1)
		go func() { gone <- a.delete(k) }()
		sent.wait()
		read := a.holdReply(redistest.Name("get"))
		got := a.goGet(k)
		read.wait()
		sent.release()
		must(t, <-gone)
		read.release()
		equal(t, "the Get that began before", got.now().value(), "v1")
		equal(t, "kept", a.kept(k), "")
		equal(t, "the next Get", a.get(k).value(), "v2")
	})
}

func TestR05_AReadThatOvertookADeleteOfUnknownOutcomeIsNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v2")
		a := newNode(t, b, db)
		read := a.holdReply(redistest.Name("get"))
		other := newNode(t, b, newDatabase("v1"))
		equal(t, "the other node's Get", other.get(k).value(), "v1")
		got := a.goGet(k)
		read.wait()
		a.faults.LoseReply(redistest.Script(scripts.remove)).Times(1)
		err := a.delete(k)
		if _, ok := errors.AsType[*InvalidationError](err); !ok {
			t.Fatalf("got %v", err)
		}
		read.release()
		equal(t, "the Get that began before", got.now().value(), "v1")
		equal(t, "kept", a.kept(k), "")
		equal(t, "the next Get", a.get(k).value(), "v2")
	})
}

// TestR05_ADeleteThatGivesUpHasForgottenBeforeItReturns: its script has run, and the client does
// not come back with the reply.
func TestR05_ADeleteThatGivesUpHasForgottenBeforeItReturns(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		a := newNode(t, b, db)
		equal(t, "value", a.get(k).value(), "v1")
		db.set("v2")
		a.holdReply(redistest.Script(scripts.remove))
		err := a.delete(k)
		if _, ok := errors.AsType[*InvalidationError](err); !ok {
			t.Fatalf("got %v", err)
		}
		equal(t, "kept", a.kept(k), "")
		equal(t, "the next Get", a.get(k).value(), "v2")
	})
}

// TestR05_ADeleteWhoseCallerLeavesHasForgottenBeforeItReturns: its script has not even been sent.
func TestR05_ADeleteWhoseCallerLeavesHasForgottenBeforeItReturns(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		a := newNode(t, b, db)
		equal(t, "value", a.get(k).value(), "v1")
		sent := a.holdCall(redistest.Script(scripts.remove))
		ctx, leave := context.WithTimeout(t.Context(), a.policy.RedisTimeout/10)
		defer leave()
		err := a.Delete(ctx, []Key{k})
		if _, ok := errors.AsType[*InvalidationError](err); !ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		equal(t, "kept", a.kept(k), "")
		sent.release()
	})
}

// TestR05_AReadThatOvertookADeleteBeyondItsBudgetIsNotKept: the caller was told after
// RedisTimeout that nothing is confirmed; the script runs after that.
func TestR05_AReadThatOvertookADeleteBeyondItsBudgetIsNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v2")
		a := newNode(t, b, db)
		other := newNode(t, b, newDatabase("v1"))
		equal(t, "the other node's Get", other.get(k).value(), "v1")
		sent := a.holdCall(redistest.Script(scripts.remove))
		err := a.delete(k) // gives up after RedisTimeout
		if _, ok := errors.AsType[*InvalidationError](err); !ok {
			t.Fatalf("got %v", err)
		}
		read := a.holdReply(redistest.Name("get"))
		got := a.goGet(k)
		read.wait()
		sent.release()
		<-sent.executed
		synctest.Wait()
		read.release()
		equal(t, "the Get that began before", got.now().value(), "v1")
		equal(t, "kept", a.kept(k), "")
		equal(t, "the next Get", a.get(k).value(), "v2")
	})
}

func TestR02_ASetWhoseFirstAttemptLandsAfterALaterSetDoesNotBringItsValueBack(t *testing.T) {
	for situation, pause := range map[string]time.Duration{"at once": 0, "too late": time.Second} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v2")
				a, other := newNode(t, b, db), newNode(t, b, db)
				late := a.faults.Repeat(redistest.Script(scripts.seize)).Times(1)
				must(t, a.set(k, "v1"))
				must(t, other.set(k, "v2"))
				time.Sleep(pause)
				late.Release(t.Context())
				for _, n := range []*testNode{newNode(t, b, db), other} {
					g := n.get(k)
					equal(t, "value", g.value(), "v2")
					between(t, "waited", g.took, 0, 2*n.policy.RedisTimeout+2*time.Millisecond)
				}
			})
		})
	}
}

func TestR07_NodesThatDecideOnOneEarlyRefreshLoadOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		nodes := make([]*testNode, 4)
		for i := range nodes {
			nodes[i] = newNode(t, b, db)
			equal(t, "value", nodes[i].get(k).value(), "v1")
		}
		copies := make([]Copy, len(nodes))
		for i, n := range nodes {
			copies[i] = n.shelf.Lookup(k)
		}
		db.set("v2")
		time.Sleep(time.Minute + time.Second) // stale for every node
		for i, n := range nodes {
			n.Tend(t.Context(), k, copies[i])
			synctest.Wait()
		}
		equal(t, "loads", db.count(), 2)
		for _, n := range nodes {
			equal(t, "kept", n.kept(k), "v2")
		}
	})
}

func TestR10_ALeaseThatNobodyKnowsOfIsGivenBack(t *testing.T) {
	for situation, landing := range map[string]time.Duration{
		"at once": 0, "just in time": 250 * time.Millisecond, "too late": 250*time.Millisecond + time.Microsecond, "much later": time.Minute,
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				a, other := newNode(t, b, db), newNode(t, b, db)
				late := a.faults.Late(redistest.Script(scripts.acquire)).Times(1)
				equal(t, "A without Redis", a.get(k).value(), "v1")
				synctest.Wait()
				time.Sleep(landing)
				late.Release(t.Context())
				time.Sleep(2 * time.Millisecond) // the second release is one millisecond after not-after
				g := other.get(k)
				equal(t, "the other node", g.value(), "v1")
				between(t, "waited", g.took, 0, 250*time.Millisecond)
			})
		})
	}
}

func TestR10_ALeaseWhoseReplyWasLostIsGivenBackAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		a, other := newNode(t, b, db), newNode(t, b, db)
		a.faults.LoseReply(redistest.Script(scripts.acquire)).Times(1)
		equal(t, "A without Redis", a.get(k).value(), "v1")
		synctest.Wait()
		g := other.get(k)
		equal(t, "the other node", g.value(), "v1")
		equal(t, "waited", g.took, 0)
	})
}

// TestR11_BeliefInWhatRedisHasNotConfirmedCountsFromTheLoadsStart: a delete on another node may
// have come while it ran.
func TestR11_BeliefInWhatRedisHasNotConfirmedCountsFromTheLoadsStart(t *testing.T) {
	const takes = 400 * time.Millisecond
	for situation, fault := range map[string]func(*redistest.Faults){
		"Redis is away":              func(f *redistest.Faults) { f.Fail(redistest.Script(scripts.acquire), nil) },
		"the commit's reply is lost": func(f *redistest.Faults) { f.LoseReply(redistest.Script(scripts.commit)) },
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				db.takes = takes
				a := newNode(t, b, db)
				fault(a.faults)
				began := a.Now()
				equal(t, "value", a.get(k).value(), "v1")
				equal(t, "believed until", a.shelf.Lookup(k).Meta().Believed, began.Add(a.policy.LocalTTL))
			})
		})
	}
}

func TestR12_AWaiterWhoseLeaseWasRemovedByAStrangerIsWokenByTheRefusedCommit(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k := keyOf("k")
		r := rigOf(t, b, k)
		a := newNode(t, b, newDatabase("own"))
		start := r.lease("B")
		got := a.goGet(k)
		got.waits()
		equal(t, "flag", r.entry().Waiters, true)
		r.remove() // by a stranger
		next := r.lease("C")
		equal(t, "flag on the new lease", r.entry().Waiters, false)
		equal(t, "commit of B", r.commit("B", start, "v1", storing{}).Status, statusRefused)
		got.waits()
		equal(t, "flag after the refusal", r.entry().Waiters, true)
		equal(t, "commit of C", r.commit("C", next, "v2", storing{}).Status, statusCommitted)
		equal(t, "value", got.now().value(), "v2")
	})
}

func TestR12_AWaiterThatSeesAnotherLeaseAsksForItsWakeUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k := keyOf("k")
		r := rigOf(t, b, k)
		a := newNode(t, b, newDatabase("own"))
		r.acquire("B", asking{lease: time.Minute})
		got := a.goGet(k)
		got.waits()
		r.remove() // by a stranger; B is never heard of again
		next := r.acquire("C", asking{lease: time.Minute}).Entry.Start
		time.Sleep(lastPause * 3 / 2) // the longest between two polls
		got.waits()
		equal(t, "flag on the new lease", r.entry().Waiters, true)
		time.Sleep(10 * time.Second)
		equal(t, "commit of C", r.commit("C", next, "v2", storing{}).Status, statusCommitted)
		equal(t, "value", got.now().value(), "v2") // at this very instant
	})
}

func TestR12_ALostRenewalWakesThoseWhoWait(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		db.takes = 10 * time.Second
		holder := newNode(t, b, db)
		r := rigOf(t, b, k)
		r.listen()
		first := holder.goGet(k)
		first.waits()
		r.remove()
		r.acquire("C", asking{lease: time.Minute})
		equal(t, "wake-ups before", r.woken(), 0)
		time.Sleep(holder.policy.LocalTTL) // the holder renews within that
		equal(t, "wake-ups", r.woken(), 1)
		equal(t, "leases lost", holder.Counts.LeasesLost.Load(), 1)
	})
}

func TestR13_ARefreshDoesNotTakeTheValueOfALoadThatBeganBefore(t *testing.T) {
	for situation, older := range map[string]int{"of this node": 0, "of another node": 1} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				nodes := []*testNode{newNode(t, b, db), newNode(t, b, db)}
				resume := db.pause()
				first := nodes[older].goGet(k)
				first.waits()
				db.set("v2")
				refresh := nodes[0].goRefresh(k)
				refresh.waits()
				resume()
				equal(t, "the older load", first.wait().value(), "v1")
				equal(t, "the refresh", refresh.wait().value(), "v2")
				equal(t, "loads", db.count(), 2)
				equal(t, "kept", nodes[0].kept(k), "v2")
			})
		})
	}
}

func TestR13_ARefreshDoesNotTakeTheValueOfALoadWithoutALeaseThatBeganBefore(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		a := newNode(t, b, db)
		a.faults.Fail(redistest.Script(scripts.acquire), nil).Times(1)
		resume := db.pause()
		first := a.goGet(k)
		first.waits()
		db.set("v2")
		refresh := a.goRefresh(k)
		synctest.Wait()
		resume()
		equal(t, "the older load", first.wait().value(), "v1")
		equal(t, "the refresh", refresh.wait().value(), "v2")
		equal(t, "the next Get", a.get(k).value(), "v2")
	})
}

func TestR13_ARefreshDoesNotTakeWhatIsFreshAlready(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		a := newNode(t, b, db)
		equal(t, "value", a.get(k).value(), "v1")
		db.set("v2")
		equal(t, "refreshed", a.goRefresh(k).wait().value(), "v2")
		equal(t, "the next Get", a.get(k).value(), "v2")
		equal(t, "loads", db.count(), 2)
	})
}

func TestR14_ALoadInTheBackgroundIsTheOnlyOneHoweverManyAsk(t *testing.T) {
	for _, tc := range []struct {
		situation string
		node      func(*testing.T, *redistest.BubbleServer, *database) *testNode
		age       time.Duration
	}{
		{"without Redis, stale", lonely, 90 * time.Second},
		{"without Redis, only for errors", lonely, 10 * time.Minute},
		{"with Redis, stale", connected, 90 * time.Second},
		{"with Redis, only for errors", connected, 10 * time.Minute},
		{"Redis away, stale", cutOff(80 * time.Second), 90 * time.Second},
		{"Redis away, only for errors", cutOff(80 * time.Second), 10 * time.Minute},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				a := tc.node(t, b, db)
				equal(t, "value", a.get(k).value(), "v1")
				db.set("v2")
				time.Sleep(tc.age)
				db.edit(func() { db.takes = 5 * time.Second })
				for range 10 {
					equal(t, "value meanwhile", a.get(k).value(), "v1")
					synctest.Wait()
				}
				equal(t, "loads", db.count(), 2)
				time.Sleep(6 * time.Second)
				equal(t, "loads", db.count(), 2) // with Redis away the next Get has it refreshed again
				equal(t, "value after it", a.get(k).value(), "v2")
			})
		})
	}
}

func TestR14_ReadsOfEveryKindJoinTheLoadOfTheirOwnNode(t *testing.T) {
	for situation, nodeIn := range map[string]func(*testing.T, *redistest.BubbleServer, *database, ...func(*Policy)) *testNode{
		"with Redis": newNode,
		"without Redis": func(t *testing.T, _ *redistest.BubbleServer, db *database, edit ...func(*Policy)) *testNode {
			return lonelyNode(t, db, edit...)
		},
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				db.takes = time.Second
				a := nodeIn(t, b, db, func(p *Policy) { p.MaxLoads = 1 }) // none is left for a second load
				first := a.goGet(k)
				first.waits()
				second := a.goFresh(k)
				for _, c := range []call{first, second} {
					g := c.wait()
					equal(t, "value", g.value(), "v1")
					equal(t, "took", g.took, time.Second)
				}
				equal(t, "loads", db.count(), 1)
				equal(t, "waits for another node", a.Counts.Waits.Load(), 0)
			})
		})
	}
}

func lonely(t *testing.T, _ *redistest.BubbleServer, db *database) *testNode {
	return lonelyNode(t, db)
}

func connected(t *testing.T, b *redistest.BubbleServer, db *database) *testNode {
	return newNode(t, b, db)
}

// cutOff is a node whose Redis answers for so long and then no more.
func cutOff(after time.Duration) func(*testing.T, *redistest.BubbleServer, *database) *testNode {
	return func(t *testing.T, b *redistest.BubbleServer, db *database) *testNode {
		n := newNode(t, b, db)
		time.AfterFunc(after, func() { n.faults.Fail(redistest.Any, nil) })
		return n
	}
}

func TestR15_WhenAHolderEndsWithNothingOneWaiterGetsTheNextLease(t *testing.T) {
	for situation, end := range map[string]func(*rig, Micros){
		"it is never heard of again": func(*rig, Micros) {},
		"it gives up":                func(r *rig, start Micros) { r.release("B", start) },
		"it is revoked":              func(r *rig, _ Micros) { r.delete(0) },
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				db.takes = time.Second
				start := rigOf(t, b, k).acquire("B", asking{lease: 3 * time.Second}).Entry.Start
				var calls []call
				for range 5 {
					n := newNode(t, b, db)
					for range 3 {
						calls = append(calls, n.goGet(k))
					}
				}
				synctest.Wait()
				equal(t, "loads while it is held", db.count(), 0)
				end(rigOf(t, b, k), start)
				for _, c := range calls {
					g := c.wait()
					equal(t, "value", g.value(), "v1")
					between(t, "took", g.took, time.Second, 4*time.Second+10*time.Millisecond)
				}
				equal(t, "loads", db.count(), 1)
			})
		})
	}
}

// TestR18_AfterTheServersClockStepsBackAKeyIsLoadedOnce: a node that knows the server's clock
// from before goes on by what it knows; one that asks anew finds the entry stale.
func TestR18_AfterTheServersClockStepsBackAKeyIsLoadedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		nodes := []*testNode{newNode(t, b, db), newNode(t, b, db)}
		for _, n := range nodes {
			equal(t, "value", n.get(k).value(), "v1")
		}
		db.set("v2")
		stepBack(b, 5*time.Second)
		nodes = append(nodes, newNode(t, b, db))
		for range 40 {
			time.Sleep(250 * time.Millisecond)
			stepBack(b, 5*time.Second) // it runs on, behind
			for _, n := range nodes {
				if g := n.get(k); g.err != nil {
					t.Fatal(g.err)
				}
			}
		}
		equal(t, "loads", db.count(), 2)
		for _, n := range nodes {
			equal(t, "value", n.get(k).value(), "v2")
		}
	})
}

// TestR19_AKeyThatIsDeletedMoreOftenThanItLoadsStillAnswers: a lease that is lost closes its load
// to newcomers, and those who wait already get what it brings.
func TestR19_AKeyThatIsDeletedMoreOftenThanItLoadsStillAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v0")
		db.takes = 2 * time.Second
		a, writer := newNode(t, b, db), newNode(t, b, db)
		got := make([]call, 8)
		for i := range got {
			got[i] = a.goGet(k)
			synctest.Wait()
			time.Sleep(900 * time.Millisecond)
			db.set(fmt.Sprint("v", i+1))
			must(t, writer.delete(k))
		}
		for i, c := range got {
			g := c.wait()
			if g.err != nil {
				t.Errorf("call %d: %v", i, g.err)
			}
			between(t, "took", g.took, 0, 4*time.Second)
		}
		equal(t, "loads that failed", a.Counts.LoadErrors.Load(), 0)
	})
}

func TestR19_ALoadThatLostItsLeaseIsNotJoinedByNewcomers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		db.takes = 5 * time.Second
		a, writer := newNode(t, b, db), newNode(t, b, db)
		first := a.goGet(k)
		synctest.Wait()
		time.Sleep(900 * time.Millisecond)
		db.set("v2")
		must(t, writer.delete(k))
		time.Sleep(a.policy.LocalTTL) // a renewal has been lost meanwhile
		equal(t, "leases lost", a.Counts.LeasesLost.Load(), 1)
		second := a.goGet(k)
		equal(t, "the first", first.wait().value(), "v1")
		equal(t, "the second", second.wait().value(), "v2")
		equal(t, "kept", a.kept(k), "v2")
	})
}

// TestR21_ASoftExpiredCopyIsNotBelievedAgain: the entry has the same version and writer as the
// copy, so the copy is the same value; but what it is good for is what the header says.
func TestR21_ASoftExpiredCopyIsNotBelievedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		a, other := newNode(t, b, db), newNode(t, b, db)
		late := a.faults.Repeat(redistest.Script(scripts.acquire)).Times(1)
		equal(t, "value", a.get(k).value(), "v1")
		must(t, other.expire(k))
		time.Sleep(time.Microsecond)
		late.Release(t.Context()) // the first attempt of the load's acquire
		r := rigOf(t, b, k)
		equal(t, "the token has a lease again", r.entry().Token, r.entry().Writer)
		db.set("v2")
		time.Sleep(a.policy.LocalTTL) // A asks
		g := a.get(k)
		equal(t, "value", g.value(), "v1")
		equal(t, "state", g.State, Stale)
		equal(t, "state of the copy", a.shelf.Lookup(k).Meta().At(a.Now()), Stale)
		time.Sleep(a.policy.Lease + a.policy.LocalTTL) // the ghost lease ends
		a.get(k)
		synctest.Wait()
		equal(t, "value after the ghost lease", a.get(k).value(), "v2")
	})
}

func TestR22_AReadOfTheOldValueIsNotKeptOverWhatALoadHasBrought(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v0")
		a, other := newNode(t, b, db), newNode(t, b, db)
		equal(t, "value", other.get(k).value(), "v0")
		time.Sleep(time.Minute + time.Second) // v0 is stale
		db.set("v1")
		a.warm() // else it asks in another way
		read := a.holdReply(redistest.Name("get"))
		old := a.goGet(k)
		read.wait()
		equal(t, "a Get of nothing stale", a.goFresh(k).now().value(), "v1")
		equal(t, "kept", a.kept(k), "v1")
		read.release()
		equal(t, "the old Get", old.now().value(), "v0")
		equal(t, "kept", a.kept(k), "v1")
		equal(t, "v0 was kept, if only for a moment", a.everKept("v0"), false)
		equal(t, "the next Get", a.get(k).value(), "v1")
		equal(t, "loads", db.count(), 2)
	})
}

func TestR23_WhenTheServerRefusesTheCommitWaitersDoNotLeaseInTurn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		db.takes = time.Second
		nodes := make([]*testNode, 4)
		for i := range nodes {
			nodes[i] = newNode(t, b, db)
			nodes[i].faults.Fail(redistest.Script(scripts.commit), redistest.ReplyError("OOM command not allowed when used memory > 'maxmemory'."))
		}
		var calls []call
		for _, n := range nodes {
			calls = append(calls, n.goGet(k))
			synctest.Wait()
		}
		equal(t, "loads at first", db.count(), 1)
		for i, c := range calls {
			g := c.wait()
			equal(t, "value", g.value(), "v1")
			want := 2 * time.Second // the first one's load, and one beside
			if i == 0 {
				want = time.Second
				equal(t, "kind", rigOf(t, b, k).entry().Kind, KindPass)
			}
			equal(t, "took", g.took, want)
		}
		equal(t, "loads", db.count(), len(nodes))
	})
}

func TestR25_AWaiterIsWokenByTheSetThatTookTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		db.takes = 10 * time.Second
		holder, waiter, writer := newNode(t, b, db), newNode(t, b, db), newNode(t, b, db)
		holding := holder.goGet(k)
		holding.waits()
		waiting := waiter.goGet(k)
		waiting.waits()
		time.Sleep(5 * time.Second)
		must(t, writer.set(k, "v2"))
		equal(t, "the waiter, at this very instant", waiting.now().value(), "v2")
		equal(t, "the holder", holding.wait().value(), "v1")
		equal(t, "kept by the holder", holder.kept(k), "")
		equal(t, "what is stored", rigOf(t, b, k).entry().Payload, "v2")
		equal(t, "loads", db.count(), 1)
	})
}
