package rebuild

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/internal/redistest"
)

// TestALoadWithoutALeaseIsJoinedOnlyAsLongAsACopyWouldBeBelieved: nothing tells whether it was revoked.
func TestALoadWithoutALeaseIsJoinedOnlyAsLongAsACopyWouldBeBelieved(t *testing.T) {
	for _, hears := range []bool{true, false} {
		inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
			k, db := keyOf("k"), newDatabase("v1")
			n := newNode(t, b, db)
			if !hears {
				n.trust = &link.Trust{}
			}
			r := rigOf(t, b, k)
			ends := r.in(time.Hour)
			r.put(Header{Kind: KindPass, Fresh: ends, Stale: ends, IfError: ends}, "")
			db.edit(func() { db.takes = 10 * time.Second })
			calls := []call{n.goGet(k)}
			time.Sleep(900 * time.Millisecond)
			calls = append(calls, n.goGet(k))
			synctest.Wait()
			equal(t, "loads within a second", db.count(), 1)
			time.Sleep(200 * time.Millisecond)
			for range 3 {
				calls = append(calls, n.goGet(k))
				synctest.Wait()
			}
			want := 1
			if !hears {
				want = 2
			}
			equal(t, "loads after it", db.count(), want)
			for _, c := range calls {
				c.wait()
			}
		})
	}
}

// TestWithRedisAwayALoadIsJoinedHoweverLongItRuns: one load per key and node.
func TestWithRedisAwayALoadIsJoinedHoweverLongItRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		n := newNode(t, b, db)
		n.trust = &link.Trust{}
		n.faults.Fail(redistest.Any, nil)
		db.edit(func() { db.takes = 10 * time.Second })
		var calls []call
		for range 5 {
			calls = append(calls, n.goGet(k))
			time.Sleep(time.Second)
		}
		equal(t, "loads", db.count(), 1)
		for _, c := range calls {
			c.wait()
		}
	})
}

// TestOneSilenceDoesNotJoinNewcomersToALoadWithoutALease: who comes when Redis answers again looks at it.
func TestOneSilenceDoesNotJoinNewcomersToALoadWithoutALease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		n, other := newNode(t, b, db), newNode(t, b, db)
		n.trust = &link.Trust{}
		db.edit(func() { db.takes = 20 * time.Second })
		r := rigOf(t, b, k)
		ends := r.in(time.Hour)
		r.put(Header{Kind: KindPass, Fresh: ends, Stale: ends, IfError: ends}, "")
		calls := []call{n.goGet(k)}
		time.Sleep(1100 * time.Millisecond)
		silence := n.faults.Fail(redistest.Any, nil).Times(1)
		calls = append(calls, n.goGet(k))
		synctest.Wait()
		equal(t, "silences", silence.Count(), 1)
		db.edit(func() { db.value, db.takes = "v2", 0 })
		must(t, other.delete(k))
		time.Sleep(n.policy.LocalTTL)
		equal(t, "value", n.goGet(k).now().value(), "v2")
		for _, c := range calls {
			c.wait()
		}
	})
}
