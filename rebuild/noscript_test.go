package rebuild

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

func TestEveryScriptIsLoadedWhereTheServerHasForgottenIt(t *testing.T) {
	r := newRig(t, redistest.RealOnly(t).Client(t))
	for name, script := range allScripts() {
		must(t, r.c.ScriptFlush(t.Context()).Err())
		if _, err := r.try(script, r.calls()[name]...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		known, err := script.Exists(t.Context(), r.c).Result()
		must(t, err)
		equal(t, name+" is known after it", known[0], true)
	}
}

func TestADeleteOfManyKeysWorksWhereTheServerHasForgottenTheScripts(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		n := newNode(t, b, newDatabase("v1"))
		var keys []Key
		for _, name := range []string{"a", "b", "c"} {
			keys = append(keys, keyOf(name))
			equal(t, "value", n.get(keyOf(name)).value(), "v1")
		}
		must(t, n.client.ScriptFlush(t.Context()).Err())
		must(t, n.Delete(t.Context(), keys))
		for _, k := range keys {
			equal(t, "entries left", n.client.Exists(t.Context(), k.Redis).Val(), 0)
			equal(t, "copy left", n.kept(k), "")
		}
	})
}

// TestALeaseThatWasAskedForTwiceLastsAsLongAsItsLoad: the client sends the script again after
// NOSCRIPT, or after a broken connection, so a first attempt may land late; the lease that the
// second got must not be given back for that while its load runs.
func TestALeaseThatWasAskedForTwiceLastsAsLongAsItsLoad(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db := newDatabase("v1")
		db.takes = 10 * time.Second
		n, other := newNode(t, b, db), newNode(t, b, db)
		k := keyOf("k")
		must(t, n.client.ScriptFlush(t.Context()).Err())
		first := n.goGet(k)
		synctest.Wait()
		loadScripts(t, n.client)
		equal(t, "loads", db.count(), 1)
		for range 9 {
			time.Sleep(time.Second)
			r := &rig{t: t, c: n.client, key: k}
			equal(t, "status for another node", r.acquire("B", asking{mode: Look}).Status, statusHeld)
		}
		second := other.goGet(k)
		equal(t, "value", first.wait().value(), "v1")
		equal(t, "value on the other node", second.wait().value(), "v1")
		equal(t, "loads", db.count(), 1)
		equal(t, "leases lost", n.Counts.LeasesLost.Load(), 0)
		time.Sleep(time.Second)
		equal(t, "state of the entry", n.get(k).State, Fresh)
	})
}
