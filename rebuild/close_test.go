package rebuild

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/internal/redistest"
)

// everybody makes somebody wait in every way there is: for a load, for another node, for a slot,
// for a turn. It returns the calls.
func everybody(t *testing.T, b *redistest.BubbleServer, n *testNode) []call {
	rigOf(t, b, keyOf("held")).lease("B")
	calls := []call{n.goGet(keyOf("loading"))}
	synctest.Wait()
	for _, c := range []call{
		n.goGet(keyOf("loading")), n.goFresh(keyOf("loading")), n.goGet(keyOf("held")), n.goGet(keyOf("no slot")),
		n.goRefresh(keyOf("loading")), n.goRefresh(keyOf("held")),
	} {
		synctest.Wait()
		calls = append(calls, c)
	}
	calls = append(calls, n.goRefresh(keyOf("held"))) // in line behind the other
	synctest.Wait()
	return calls
}

func TestCloseEndsEveryWaitAndGivesTheLeasesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db := newDatabase("v1")
		db.takes = 10 * time.Second
		n := newNode(t, b, db, func(p *Policy) { p.MaxLoads = 1 })
		calls := everybody(t, b, n)
		for _, c := range calls {
			c.waits()
		}
		began := time.Now()
		n.Close()
		between(t, "Close took", time.Since(began), 0, n.policy.RedisTimeout)
		for _, c := range calls {
			if g := c.now(); !errors.Is(g.err, ErrClosed) {
				t.Errorf("a call returned %q", g.value())
			}
		}
		equal(t, "the lease of the load", rigOf(t, b, keyOf("loading")).raw(), "")
		equal(t, "failures remembered", n.failed.size(), 0)
		equal(t, "abandoned loads that still run", n.Counts.AbandonedNow.Load(), 0)
		n.Close()
	})
}

func TestCloseOnAServerThatHasFrozenTakesOneRedisTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db := newDatabase("v1")
		db.takes = 10 * time.Second
		n := newNode(t, b, db, func(p *Policy) { p.MaxLoads = 1 })
		calls := everybody(t, b, n)
		b.Freeze()
		began := time.Now()
		n.Close()
		between(t, "Close took", time.Since(began), 0, n.policy.RedisTimeout)
		for _, c := range calls {
			if g := c.now(); !errors.Is(g.err, ErrClosed) {
				t.Errorf("a call returned %q", g.value())
			}
		}
		b.Thaw()
	})
}

func TestALoaderThatIgnoresCloseIsCountedUntilItEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db := newDatabase("v1")
		db.takes, db.deaf = 10*time.Second, true
		n := newNode(t, b, db)
		c := n.goGet(keyOf("k"))
		c.waits()
		n.Close()
		equal(t, "the caller's error", errors.Is(c.now().err, ErrClosed), true)
		equal(t, "the lease", rigOf(t, b, keyOf("k")).raw(), "")
		equal(t, "abandoned", n.Counts.AbandonedNow.Load(), 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		equal(t, "abandoned, after it ended", n.Counts.AbandonedNow.Load(), 0)
		equal(t, "kept", n.kept(keyOf("k")), "")
	})
}

func TestAClosedNodeRefusesEveryCall(t *testing.T) {
	for situation, nodeIn := range map[string]func(*testing.T, *redistest.BubbleServer, *database) *testNode{
		"with Redis": connected, "without Redis": lonely,
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				db := newDatabase("v1")
				n := nodeIn(t, b, db)
				k := keyOf("k")
				n.get(k)
				n.Close()
				_, _, peeked := n.Peek(t.Context(), k)
				for what, err := range map[string]error{
					"Get": n.get(k).err, "Get of nothing stale": n.goFresh(k).wait().err, "Refresh": n.goRefresh(k).wait().err,
					"Set": n.set(k, "v2"), "Delete": n.delete(k), "Expire": n.expire(k), "Peek": peeked,
				} {
					if !errors.Is(err, ErrClosed) {
						t.Errorf("%s: got %v", what, err)
					}
				}
				n.Tend(t.Context(), k, stamped("v1", Stamp{}))
				synctest.Wait()
				must(t, n.Shutdown(t.Context()))
				equal(t, "loads", db.count(), 1)
			})
		})
	}
}

func TestShutdownWaitsForTheLoadsThatRunAndStoresWhatTheyBring(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db := newDatabase("v1")
		db.takes = 10 * time.Second
		n := newNode(t, b, db)
		c := n.goGet(keyOf("k"))
		c.waits()
		began := time.Now()
		down := make(chan error, 1)
		go func() { down <- n.Shutdown(t.Context()) }()
		synctest.Wait()
		if g := n.get(keyOf("another")); !errors.Is(g.err, ErrClosed) {
			t.Errorf("a load began: %q", g.value())
		}
		must(t, <-down)
		equal(t, "took", time.Since(began), 10*time.Second)
		equal(t, "value", c.now().value(), "v1")
		equal(t, "stored", rigOf(t, b, keyOf("k")).entry().Payload, "v1")
		equal(t, "loads", db.count(), 1)
	})
}

func TestShutdownClosesWhenItsContextEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db := newDatabase("v1")
		db.takes = 10 * time.Second
		n := newNode(t, b, db)
		c := n.goGet(keyOf("k"))
		c.waits()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		equal(t, "the caller's error", errors.Is(c.now().err, ErrClosed), true)
		equal(t, "the lease", rigOf(t, b, keyOf("k")).raw(), "")
	})
}

func TestANodeMayBeClosedWhileManyUseIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db := newDatabase("v1")
		db.takes = time.Millisecond
		n := newNode(t, b, db)
		var calls []call
		for _, name := range []string{"a", "b", "c"} {
			k := keyOf(name)
			calls = append(calls, n.goGet(k), n.goFresh(k), n.goRefresh(k))
			for _, change := range []func() error{
				func() error { return n.set(k, "v2") },
				func() error { return n.delete(k) },
				func() error { return n.expire(k) },
			} {
				calls = append(calls, start(t, func() (Answer, error) { return Answer{Copy: stamped("", Stamp{})}, change() }))
			}
		}
		for range 2 {
			calls = append(calls, start(t, func() (Answer, error) { n.Close(); return Answer{Copy: stamped("", Stamp{})}, nil }))
		}
		for _, c := range calls {
			if g := c.wait(); g.err != nil && !errors.Is(g.err, ErrClosed) {
				t.Errorf("got %v", g.err)
			}
		}
	})
}

// TestNothingOfAClosedNodeIsLeft is about sockets and goroutines, so it takes a real connection.
func TestNothingOfAClosedNodeIsLeft(t *testing.T) {
	s := redistest.Shared(t)
	client := s.Client(t)
	before := goleak.IgnoreCurrent()
	l, err := link.Open(client)
	must(t, err)
	db := newDatabase("v1")
	n := &testNode{t: t, shelf: newShelf(db), client: client}
	n.Node = New(l, n.shelf, edited([]func(*Policy){patient}))
	k := keyOf(redistest.Prefix(t))
	r := newRig(t, client)
	r.key = k
	start := r.lease("B")
	waiting := n.goGet(k) // opens the hub
	redistest.Eventually(t, longEnough, func() bool { return r.entry().Waiters }, "the flag is up")
	r.release("B", start)
	equal(t, "value", waiting.wait().value(), "v1")
	db.edit(func() { db.err = errRoute })
	equal(t, "error", errors.Is(n.get(keyOf(k.Text+" failing")).err, errRoute), true) // starts the timer
	n.Close()
	n.clean()
	l.Close()
	must(t, client.Close())
	if err := goleak.Find(before, goleak.IgnoreAnyFunction(redistest.ChildGoroutine)); err != nil {
		t.Error(err)
	}
}
