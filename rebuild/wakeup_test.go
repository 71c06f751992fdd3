package rebuild

import (
	"testing"
	"time"
)

// endings are the scripts that end a lease of A, each with what it answers.
var endings = []struct {
	name string
	want Status
	do   func(r *rig, start Micros) reply
}{
	{"commit", statusCommitted, func(r *rig, start Micros) reply { return r.commit("A", start, "v1", storing{}) }},
	{"commit of an older row", statusOlder, func(r *rig, start Micros) reply { return r.commit("A", start, "v1", storing{row: 1}) }},
	{"pass", statusPassed, func(r *rig, start Micros) reply { return r.pass("A", start, time.Second) }},
	{"fail", statusFailed, func(r *rig, start Micros) reply { return r.fail("A", start, failing{message: "no"}) }},
	{"release", statusReleased, func(r *rig, start Micros) reply { return r.release("A", start) }},
	{"release, whatever its start", statusReleased, func(r *rig, start Micros) reply { return r.release("A", 0) }},
	{"delete", statusDeleted, func(r *rig, _ Micros) reply { return r.delete(0) }},
	{"delete, hold-down", statusDeleted, func(r *rig, _ Micros) reply { return r.delete(time.Minute) }},
	{"expire", statusExpired, func(r *rig, _ Micros) reply { return r.expire(0) }},
	{"seize, late", statusLate, func(r *rig, _ Micros) reply { return r.seize("S", seizing{row: 9, notAfter: 1}) }},
}

// onEndings runs f for each ending on entries of each kind, leased to A.
func onEndings(t *testing.T, f func(r *rig, name string, end func() reply, want Status)) {
	onServers(t, func(r *rig) {
		r.listen()
		for _, e := range endings {
			for _, h := range []Header{r.valued(0, time.Minute, time.Hour), {Kind: KindLease}, {Kind: KindFailed, Failures: 1}} {
				h = r.leased(h, "A", time.Minute)
				h.Row = 7
				r.put(h, "")
				f(r, e.name+" on "+string(h.Kind), func() reply { return e.do(r, h.Start) }, e.want)
			}
		}
	})
}

func TestEveryEndOfALeaseWakesThoseWhoWait(t *testing.T) {
	onEndings(t, func(r *rig, name string, end func() reply, want Status) {
		equal(r.t, "status of the waiter", r.acquire("B", asking{mode: Wait}).Status, statusHeld)
		answer := end()
		equal(r.t, name+": status", answer.Status, want)
		equal(r.t, name+": wake-up in the answer", answer.int(2), 1)
		equal(r.t, name+": wake-ups", r.woken(), 1)
		if e, err := parseEntry(r.raw(), r.key.Hash); err == nil {
			equal(r.t, name+": token left", e.Token, "")
			equal(r.t, name+": flag left", e.Waiters, false)
		}
	})
}

func TestNothingIsPublishedWhereNobodyWaits(t *testing.T) {
	onEndings(t, func(r *rig, name string, end func() reply, want Status) {
		equal(r.t, "status of one who does not wait", r.acquire("B", asking{mode: Try}).Status, statusHeld)
		answer := end()
		equal(r.t, name+": status", answer.Status, want)
		equal(r.t, name+": wake-up in the answer", answer.int(2), 0)
		equal(r.t, name+": wake-ups", r.woken(), 0)
	})
}

func TestWhatEndsNoLeasePublishesNothing(t *testing.T) {
	onServers(t, func(r *rig) {
		r.listen()
		start := r.flagged("A")
		r.acquire("A", asking{mode: Wait})
		r.acquire("B", asking{mode: Look})
		r.renew("A", start, 3*time.Second)
		r.release("B", 0)
		equal(r.t, "wake-ups", r.woken(), 0)
	})
}

func TestARepeatedCommitPublishesNothingAndLeavesTheFlagOfTheNextLease(t *testing.T) {
	onServers(t, func(r *rig) {
		start := r.lease("A")
		args := r.commitArgs("A", start, "v1", storing{})
		r.do(scripts.commit, args...)
		r.expire(0)
		r.listen()
		r.flagged("B")
		equal(r.t, "wake-up in the answer", r.do(scripts.commit, args...).int(2), 0)
		equal(r.t, "wake-ups", r.woken(), 0)
		equal(r.t, "flag", r.entry().Waiters, true)
	})
}
