package rebuild

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/internal/redistest"
)

// aged is the stamp of a value that was stored at 0 and is fresh for so long.
func aged(fresh, cost time.Duration, beta float64) Stamp {
	s := Stamp{Kind: KindValue, Loaded: -link.Instant(cost), Fresh: link.Instant(fresh), Stale: link.Instant(2 * fresh), IfError: link.Instant(2 * fresh)}
	s.prepare(cost, beta)
	s.believe(0, time.Hour)
	return s
}

func TestEarlyIsTheLastFifthAndXFetchsDraw(t *testing.T) {
	const fresh, cost = 10 * time.Second, 100 * time.Millisecond
	for _, beta := range []float64{0.5, 1, 3} {
		s := aged(fresh, cost, beta)
		for range 2000 {
			at, r := link.Instant(rand.Int64N(int64(fresh))), 1-rand.Float64()
			want := at >= link.Instant(8*time.Second) && float64(at)-beta*float64(cost)*math.Log(r) >= float64(fresh)
			if got := s.early(at, r); got != want {
				t.Fatalf("at %v, drawn %v, beta %v: %v", time.Duration(at), r, beta, got)
			}
		}
		equal(t, "the least of all draws, just before the last fifth", s.early(link.Instant(8*time.Second)-1, 1e-300), false)
		equal(t, "and in it", s.early(link.Instant(8*time.Second), 1e-300), true)
		equal(t, "the greatest draw, just before the end", s.early(s.Fresh-1, 1), false)
	}
}

func TestNothingIsEarlyThatIsOffOrCostsNothingOrIsNotFound(t *testing.T) {
	for situation, s := range map[string]Stamp{
		"off": aged(10*time.Second, time.Second, 0), "no cost": aged(10*time.Second, 0, 1),
		"not found": func() Stamp {
			s := Stamp{Kind: KindNotFound, Fresh: link.Instant(10 * time.Second)}
			s.prepare(time.Second, 1)
			return s
		}(),
	} {
		equal(t, situation, s.early(s.Fresh-1, 1e-300), false)
		equal(t, situation+": begins", s.Early, s.Fresh)
	}
}

func TestTheCostIsSmoothedOverTheLastLoads(t *testing.T) {
	equal(t, "first", smoothed(0, 100*time.Millisecond), 100*time.Millisecond)
	equal(t, "one slow load", smoothed(100*time.Millisecond, 500*time.Millisecond), 200*time.Millisecond)
	cost := time.Second
	for range 20 {
		cost = smoothed(cost, 100*time.Millisecond)
	}
	if cost > 105*time.Millisecond {
		t.Errorf("after 20 quick loads it is %v", cost)
	}
}

// inTheZone makes a value whose last fifth has just begun, with a lead so long that every draw says
// "now". It is for use in a bubble.
func inTheZone(t *testing.T, b *redistest.BubbleServer, db *database, k Key) *testNode {
	n := newNode(t, b, db, func(p *Policy) { p.TTL, p.EarlyRefresh = 10*time.Second, 1e6 })
	db.edit(func() { db.takes = 50 * time.Millisecond })
	equal(t, "value", n.get(k).value(), "v1")
	db.set("v2")
	time.Sleep(9 * time.Second)
	return n
}

func TestAnEarlyRefreshHoldsUpNobodyAndIsMadeByOneNode(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		n := inTheZone(t, b, db, k)
		other := newNode(t, b, db, func(p *Policy) { p.TTL, p.EarlyRefresh = 10*time.Second, 1e6 })
		for range 20 {
			for _, each := range []*testNode{n, other} {
				g := each.get(k)
				equal(t, "value meanwhile", g.value(), "v1")
				equal(t, "state", g.State, Fresh)
				equal(t, "took", g.took, 0)
			}
			synctest.Wait()
		}
		time.Sleep(time.Second)
		equal(t, "value", n.get(k).value(), "v2")
		equal(t, "loads", db.count(), 2)
		equal(t, "early ones", n.Counts.Early.Load()+other.Counts.Early.Load(), 1)
		equal(t, "the smoothed cost", rigOf(t, b, k).entry().Cost, 50*time.Millisecond)
	})
}

func TestWhatAnotherNodeHasRefreshedIsTakenOverAndNotRefreshedAgain(t *testing.T) { // R07
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		n := inTheZone(t, b, db, k)
		n.policy.LocalTTL = time.Hour // it would not ask by itself
		equal(t, "value", n.get(k).value(), "v1")
		time.Sleep(100 * time.Millisecond)
		late := newNode(t, b, db, func(p *Policy) { p.TTL, p.EarlyRefresh = 10*time.Second, 1e6 })
		equal(t, "value of the other node", late.get(k).value(), "v2")
		equal(t, "loads", db.count(), 2)
	})
}

// The value is served to its end, and nobody tries again within the back-off.
func TestAnEarlyRefreshThatFailsLeavesTheValue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		n := inTheZone(t, b, db, k)
		n.policy.Backoff = time.Minute
		db.edit(func() { db.err = errors.New("the database is away") })
		for i := range 9 {
			g := n.get(k)
			equal(t, "value", g.value(), "v1")
			equal(t, "state", g.State, Fresh)
			equal(t, "from memory", g.Source == Local, i > 0) // at first it is verified
			time.Sleep(100 * time.Millisecond)
		}
		equal(t, "loads", db.count(), 2)
	})
}

func TestWithoutRedisAValueIsRefreshedEarlyToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, db := keyOf("k"), newDatabase("v1")
		db.takes = 50 * time.Millisecond
		n := lonelyNode(t, db, func(p *Policy) { p.TTL, p.EarlyRefresh = 10*time.Second, 1e6 })
		equal(t, "value", n.get(k).value(), "v1")
		db.set("v2")
		time.Sleep(9 * time.Second)
		equal(t, "value meanwhile", n.get(k).value(), "v1")
		time.Sleep(100 * time.Millisecond)
		equal(t, "value", n.get(k).value(), "v2")
		equal(t, "loads", db.count(), 2)
		equal(t, "early ones", n.Counts.Early.Load(), 1)
	})
}

// TestAnEarlyRefreshAsksForNothingWhileALoadOfItsNodeRuns: no slot, no command.
func TestAnEarlyRefreshAsksForNothingWhileALoadOfItsNodeRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		n := inTheZone(t, b, db, k)
		n.get(k) // verifies, and is seen to
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		db.edit(func() { db.takes = time.Second })
		running := n.goRefresh(k)
		running.waits()
		asked := n.faults.Delay(redistest.Script(scripts.acquire), time.Nanosecond)
		n.shelf.Keep(k, n.values.Stamped(k, n.shelf.Lookup(k), n.shelf.Lookup(k).Meta().Stamp)) // with no claim on it
		n.Tend(t.Context(), k, n.shelf.Lookup(k))
		synctest.Wait()
		equal(t, "acquires", asked.Count(), 0)
		running.wait()
	})
}
