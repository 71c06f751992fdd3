package rebuild

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/loader"
)

func TestWithoutRedisAnExpiredValueIsServedStaleAndRefreshed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, db := keyOf("k"), newDatabase("v1")
		n := lonelyNode(t, db)
		equal(t, "value", n.get(k).value(), "v1")
		db.set("v2")
		must(t, n.expire(k))
		g := n.get(k)
		equal(t, "value", g.value(), "v1")
		equal(t, "state", g.State, Stale)
		synctest.Wait()
		equal(t, "value after the refresh", n.get(k).value(), "v2")
		equal(t, "loads", db.count(), 2)
	})
}

func TestWithoutRedisAnExpiredValueIsThereForErrorsAsLongAsItWouldHaveBeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, db := keyOf("k"), newDatabase("v1")
		n := lonelyNode(t, db)
		equal(t, "value", n.get(k).value(), "v1")
		must(t, n.expire(k))
		db.edit(func() { db.err = errors.New("the database is away") })
		time.Sleep(n.policy.IfError - time.Second)
		equal(t, "value", n.get(k).value(), "v1")
		time.Sleep(time.Second)
		if g := n.get(k); g.err == nil {
			t.Errorf("got %q after its windows", g.value())
		}
	})
}

func TestWithoutRedisNotFoundGoesWithAnExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, db := keyOf("k"), newDatabase("")
		db.err = loader.ErrNotFound
		n := lonelyNode(t, db)
		equal(t, "value", n.get(k).value(), "not found")
		db.edit(func() { db.value, db.err = "v1", nil })
		must(t, n.expire(k))
		equal(t, "value", n.get(k).value(), "v1")
	})
}

// TestWithoutRedisASetOfAnOlderRowLeavesTheBackoff: the database has failed since the newer one was set.
func TestWithoutRedisASetOfAnOlderRowLeavesTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, db := keyOf("k"), newDatabase("v0")
		n := lonelyNode(t, db, func(p *Policy) { p.Stale = 0 })
		must(t, n.Set(t.Context(), k, &text{value: "v2"}, Written{Row: 2}))
		db.err = errors.New("the database is away")
		time.Sleep(n.policy.TTL + time.Second)
		equal(t, "value", n.get(k).value(), "v2") // there for errors
		must(t, n.Set(t.Context(), k, &text{value: "v1"}, Written{Row: 1}))
		equal(t, "value after the older one", n.get(k).value(), "v2")
		equal(t, "loads", db.count(), 1)
		must(t, n.Set(t.Context(), k, &text{value: "v3"}, Written{Row: 3}))
		equal(t, "what is remembered after a newer one", n.Failure(k.Text), nil)
	})
}

func TestWithoutRedisASetOfAnOlderRowChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keyOf("k")
		n := lonelyNode(t, newDatabase("v0"))
		must(t, n.Set(t.Context(), k, &text{value: "v2"}, Written{Row: 2}))
		must(t, n.Set(t.Context(), k, &text{value: "v1"}, Written{Row: 1}))
		equal(t, "value", n.get(k).value(), "v2")
		must(t, n.Set(t.Context(), k, &text{value: "v3"}, Written{Row: 3}))
		equal(t, "value", n.get(k).value(), "v3")
	})
}
