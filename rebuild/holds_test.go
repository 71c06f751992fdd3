package rebuild

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// TestAHoldDownIsNotPassedByALateCommit: one of a Clear ends when it ends, however long the commit takes.
func TestAHoldDownIsNotPassedByALateCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase("v1")
		db.takes = time.Millisecond
		b := redistest.Bubble(t)
		n := newNode(t, b, db, func(p *Policy) { p.HoldDown = time.Second; p.Stale, p.IfError = 0, 0 })
		must(t, n.Clear(t.Context()))
		ends := time.Now().Add(time.Second)
		time.Sleep(10 * time.Millisecond)
		late := n.faults.Late(redistest.Script(scripts.commit)).Times(1 + insistTimes)
		k := keyOf("k")
		n.get(k)
		time.Sleep(800 * time.Millisecond)
		late.Release(t.Context())
		raw, err := b.Mini().Get(k.Redis)
		must(t, err)
		e, err := parseEntry(raw, k.Hash)
		must(t, err)
		equal(t, "kind", e.Kind, KindValue)
		if over := time.UnixMilli(int64(e.Fresh)).Sub(ends); over > 0 || over < -10*time.Millisecond {
			t.Errorf("fresh until %v after the end of the hold-down", over)
		}
	})
}

// TestWithoutRedisASetIsNotHeldDown: its value comes from no replica.
func TestWithoutRedisASetIsNotHeldDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase("v1")
		n := lonelyNode(t, db, func(p *Policy) { p.HoldDown = 2 * time.Second; p.Stale, p.IfError = 0, 0 })
		time.Sleep(time.Second)
		k := keyOf("k")
		for what, end := range map[string]func() error{
			"Delete": func() error { return n.delete(k) },
			"Clear":  func() error { return n.Clear(t.Context()) },
		} {
			must(t, end())
			must(t, n.set(k, "v2"))
			time.Sleep(3 * time.Second)
			equal(t, "what is served after "+what, n.get(k).value(), "v2")
			equal(t, "loads", db.count(), 0)
		}
	})
}
