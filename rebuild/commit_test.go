package rebuild

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestACommitStoresTheEntryWithWindowsFromNow(t *testing.T) {
	onServers(t, func(r *rig) {
		start := r.lease("A")
		answer := r.commit("A", start, "v1", storing{fresh: time.Minute, stale: 2 * time.Minute, ifError: time.Hour, cost: 5 * time.Millisecond})
		equal(r.t, "status", answer.Status, statusCommitted)
		e := r.entry()
		equal(r.t, "header in the answer", answer.Entry.Header, e.Header)
		after(r.t, "fresh", e.Fresh, answer.Now, time.Minute)
		after(r.t, "stale", e.Stale, answer.Now, 2*time.Minute)
		after(r.t, "if error", e.IfError, answer.Now, time.Hour)
		e.Fresh, e.Stale, e.IfError = 0, 0, 0
		equal(r.t, "the rest", e, Entry{Payload: "v1", Header: Header{Kind: KindValue, Codec: stringCodec, Compression: '-',
			Identity: Identity{start, token("A")}, Hash: r.key.Hash, Cost: 5 * time.Millisecond, Body: 2}})
		between(r.t, "lifetime", r.life(), time.Hour-time.Minute, time.Hour)
	})
}

func TestAnEntryLivesAsLongAsItsLastWindow(t *testing.T) {
	passing(t, func(r *rig) {
		r.store("A", "v1", storing{fresh: time.Second, stale: time.Second, ifError: 2 * time.Second})
		time.Sleep(2*time.Second - time.Millisecond)
		equal(r.t, "payload", r.entry().Payload, "v1")
		time.Sleep(time.Millisecond)
		r.gone()
	})
}

func TestNotFoundIsStoredWithoutAPayload(t *testing.T) {
	onServers(t, func(r *rig) {
		window := 20 * time.Second
		r.store("A", "", storing{kind: KindNotFound, fresh: window, stale: window, ifError: window})
		equal(r.t, "kind", r.entry().Kind, KindNotFound)
		equal(r.t, "status", r.acquire("B", asking{}).Status, statusFresh)
		between(r.t, "lifetime", r.life(), 1, window)
	})
}

func TestAnyBytesAreStoredAsTheyAre(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, value := range []string{"", "\x00", "%s\r\n\xff\xfe", strings.Repeat("x", 1<<20)} {
			r.store("A", value, storing{})
			equal(r.t, "payload", r.entry().Payload, value)
			r.delete(0)
		}
	})
}

func TestACommitEndsTheLeaseAndTheMemoryOfFailures(t *testing.T) {
	onServers(t, func(r *rig) {
		h := r.leased(r.valued(0, time.Minute, time.Hour), "A", time.Minute)
		h.Failures, h.RetryAfter = 5, r.in(-time.Second)
		r.put(h, "v1")
		equal(r.t, "status", r.commit("A", r.entry().Start, "v2", storing{}).Status, statusCommitted)
		e := r.entry()
		equal(r.t, "payload", e.Payload, "v2")
		equal(r.t, "token", e.Token, "")
		equal(r.t, "failures", e.Failures, 0)
		equal(r.t, "retry after", e.RetryAfter, 0)
	})
}

func TestALeaseThatRanOutStillCommitsWhileNobodyElseHasTheKey(t *testing.T) {
	onServers(t, func(r *rig) {
		r.put(r.leased(r.valued(0, time.Minute, time.Hour), "A", -time.Minute), "v1")
		equal(r.t, "status", r.commit("A", r.entry().Start, "v2", storing{}).Status, statusCommitted)
	})
}

func TestACommitIsRefusedAfterAnythingThatRevokesItsLease(t *testing.T) {
	onServers(t, func(r *rig) {
		for situation, revoke := range map[string]func(*rig){
			"delete":              func(r *rig) { r.delete(0) },
			"delete, hold-down":   func(r *rig) { r.delete(time.Minute) },
			"expire":              func(r *rig) { r.expire(0) },
			"expire, hold-down":   func(r *rig) { r.expire(time.Minute) },
			"seize":               func(r *rig) { r.seize("S", seizing{}) },
			"seize, late":         func(r *rig) { r.seize("S", seizing{notAfter: 1}) },
			"release":             func(r *rig) { r.release("A", 0) },
			"plain DEL":           func(r *rig) { r.remove() },
			"plain SET":           func(r *rig) { r.putRaw("theirs", time.Hour) },
			"FLUSHDB":             func(r *rig) { must(r.t, r.c.FlushDB(r.t.Context()).Err()) },
			"its own fail":        func(r *rig) { r.fail("A", r.entry().Start, failing{}) },
			"its own pass":        func(r *rig) { r.pass("A", r.entry().Start, time.Minute) },
			"delete and acquire":  func(r *rig) { r.delete(0); r.lease("B") },
			"delete and re-lease": func(r *rig) { r.delete(0); r.lease("A") },
			"another's commit":    func(r *rig) { r.delete(0); r.store("B", "v2", storing{}) },
		} {
			r.put(r.leased(r.valued(0, time.Minute, time.Hour), "A", time.Minute), "v0")
			start := r.entry().Start
			revoke(r)
			before := r.raw()
			equal(r.t, situation+": status", r.commit("A", start, "v1", storing{}).Status, statusRefused)
			equal(r.t, situation+": what stands there", r.raw(), before)
		}
	})
}

func TestARepeatedCommitWritesNothingAndReportsTheWindowsOfNow(t *testing.T) {
	onServers(t, func(r *rig) {
		start := r.lease("A")
		args := r.commitArgs("A", start, "v1", storing{})
		first := r.do(scripts.commit, args...)
		r.expire(0)
		r.lease("B")
		before := r.raw()
		again := r.do(scripts.commit, args...)
		equal(r.t, "status", again.Status, statusCommitted)
		equal(r.t, "what stands there", r.raw(), before)
		equal(r.t, "header in the answer", again.Entry.Header, r.entry().Header)
		between(r.t, "fresh until", again.Entry.Fresh, 1, Millis(again.Now/1000))
		equal(r.t, "identity", again.Entry.Identity, first.Entry.Identity)
	})
}

func TestACommitUnderAnotherStartIsNoRepetition(t *testing.T) {
	onServers(t, func(r *rig) {
		id := r.store("A", "v1", storing{})
		before := r.raw()
		for _, start := range []Micros{id.Version - 1, id.Version + 1} {
			equal(r.t, "status", r.commit("A", start, "v2", storing{}).Status, statusRefused)
			equal(r.t, "what stands there", r.raw(), before)
		}
	})
}

func TestALoadKeepsTheRowVersionOfTheEntry(t *testing.T) {
	onServers(t, func(r *rig) {
		h := r.leased(r.valued(0, time.Minute, time.Hour), "A", time.Minute)
		h.Row = 7
		r.put(h, "v1")
		answer := r.commit("A", r.entry().Start, "v2", storing{})
		equal(r.t, "status", answer.Status, statusCommitted)
		equal(r.t, "row", r.entry().Row, 7)
		equal(r.t, "row in the answer", answer.Entry.Row, 7)
	})
}

func TestARowVersionBelowTheEntrysEndsTheLeaseAndStoresNothing(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, tc := range []struct {
			there, row uint64
			want       Status
		}{
			{7, 6, statusOlder}, {7, 7, statusCommitted}, {7, 8, statusCommitted}, {7, 16, statusCommitted}, {16, 9, statusOlder},
			{0, 1, statusCommitted}, {1 << 40, 1, statusOlder}, {7, 1 << 63, statusCommitted}, {math.MaxUint64, 1 << 63, statusOlder},
			{7, math.MaxUint64, statusCommitted},
		} {
			h := r.leased(r.valued(0, time.Minute, time.Hour), "A", time.Minute)
			h.Row = tc.there
			r.put(h, "v1")
			before := r.raw()
			equal(r.t, "status", r.commit("A", r.entry().Start, "v2", storing{row: tc.row}).Status, tc.want)
			if tc.want == statusCommitted {
				equal(r.t, "row", r.entry().Row, tc.row)
				continue
			}
			equal(r.t, "changed", differing(before, r.raw()), "[retry failures token start until]")
			equal(r.t, "failures", r.entry().Failures, 1)
			equal(r.t, "token", r.entry().Token, "")
		}
	})
}

func TestWithinAHoldDownNoWindowOutlastsIt(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, there := range []Kind{KindLease, KindValue} {
			h := r.leased(r.valued(0, time.Minute, time.Hour), "A", time.Minute)
			h.Kind, h.HoldDown = there, r.in(90*time.Second)
			r.put(h, "")
			answer := r.commit("A", r.entry().Start, "v2", storing{fresh: time.Minute, stale: 2 * time.Minute, ifError: time.Hour})
			e := r.entry()
			after(r.t, "fresh", e.Fresh, answer.Now, time.Minute)
			equal(r.t, "stale", e.Stale, h.HoldDown)
			equal(r.t, "if error", e.IfError, h.HoldDown)
			equal(r.t, "hold-down", e.HoldDown, h.HoldDown)
			between(r.t, "lifetime", r.life(), 60*time.Second, 90*time.Second)
		}
	})
}

func TestAHoldDownOutlastsShortWindows(t *testing.T) {
	onServers(t, func(r *rig) {
		r.delete(time.Minute)
		ends := r.entry().HoldDown
		r.store("A", "v2", storing{fresh: time.Second, stale: time.Second, ifError: time.Second})
		equal(r.t, "hold-down", r.entry().HoldDown, ends)
		between(r.t, "lifetime", r.life(), 50*time.Second, time.Minute)
	})
}

func TestAHoldDownThatIsOverShortensNothing(t *testing.T) {
	onServers(t, func(r *rig) {
		h := r.leased(r.valued(0, time.Minute, time.Hour), "A", time.Minute)
		h.HoldDown = Millis(h.Start / 1000)
		r.put(h, "v1")
		answer := r.commit("A", r.entry().Start, "v2", storing{fresh: time.Minute, stale: 2 * time.Minute, ifError: time.Hour})
		after(r.t, "if error", r.entry().IfError, answer.Now, time.Hour)
	})
}

// TestALoadThatBeganWithinAHoldDownIsNotServedAfterIt: it may have read what the hold-down is about.
func TestALoadThatBeganWithinAHoldDownIsNotServedAfterIt(t *testing.T) {
	onServers(t, func(r *rig) {
		h := r.leased(Header{Kind: KindLease}, "A", time.Minute)
		h.HoldDown = Millis(h.Start/1000) + 1
		r.put(h, "")
		for r.in(0) <= h.HoldDown {
			r.tick()
		}
		answer := r.commit("A", h.Start, "v1", storing{fresh: time.Minute, stale: 2 * time.Minute, ifError: time.Hour})
		equal(r.t, "status", answer.Status, statusCommitted)
		equal(r.t, "fresh", answer.Entry.Fresh, h.HoldDown)
		equal(r.t, "if error", answer.Entry.IfError, h.HoldDown)
		equal(r.t, "state", answer.Entry.view(answer.Now).State, Gone)
	})
}

func TestASettersValueEndsTheHoldDown(t *testing.T) {
	onServers(t, func(r *rig) {
		r.delete(time.Minute)
		start := Micros(r.seize("S", seizing{}).int(3))
		answer := r.commit("S", start, "v2", storing{setter: true, fresh: time.Hour, stale: time.Hour, ifError: time.Hour})
		equal(r.t, "status", answer.Status, statusCommitted)
		equal(r.t, "hold-down", r.entry().HoldDown, 0)
		after(r.t, "fresh", r.entry().Fresh, answer.Now, time.Hour)
	})
}
