package rebuild

import (
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// Each of the schedules that broke earlier forms of the protocol has a number. These are about
// scripts alone; races_node_test.go has those about nodes.

func TestR01_ALateFirstAcquireReCreatesTheTokenButNotTheLease(t *testing.T) {
	onServers(t, func(r *rig) {
		late := asking{} // its first attempt is on its way
		start := r.acquire("T", late).Entry.Start
		r.delete(0) // returned: v1, which the load has read, is too old
		r.tick()
		again := r.acquire("T", late)
		equal(r.t, "the first attempt, landing late", again.Status, statusLeased)
		equal(r.t, "commit of v1", r.commit("T", start, "v1", storing{}).Status, statusRefused)
		equal(r.t, "kind", r.entry().Kind, KindLease)
		equal(r.t, "renewal", r.renew("T", start, 3*time.Second).Status, statusLost)
		equal(r.t, "fail", r.fail("T", start, failing{}).Status, statusRefused)
		equal(r.t, "pass", r.pass("T", start, time.Second).Status, statusRefused)
		equal(r.t, "the holder gives back whatever its token has", r.release("T", 0).Status, statusReleased)
		r.gone()
	})
}

func TestR02_ALateFirstStepOfASetCannotBringItsValueBack(t *testing.T) {
	onServers(t, func(r *rig) {
		for situation, notAfter := range map[string]Micros{"in time": 0, "too late": 1} {
			first := Micros(r.seize("S1", seizing{}).int(3))
			equal(r.t, "commit of v1", r.commit("S1", first, "v1", storing{setter: true}).Status, statusCommitted)
			second := Micros(r.seize("S2", seizing{}).int(3))
			equal(r.t, "commit of v2", r.commit("S2", second, "v2", storing{setter: true}).Status, statusCommitted)
			r.seize("S1", seizing{notAfter: notAfter}) // the first attempt lands
			equal(r.t, situation+": v1's commit, repeated", r.commit("S1", first, "v1", storing{setter: true}).Status, statusRefused)
			if raw := r.raw(); raw != "" {
				equal(r.t, situation+": what stands there", r.entry().Kind, KindLease)
			}
			r.delete(0)
		}
	})
}

func TestR07_WhatSomebodyHasJustRefreshedIsNotRefreshedAgain(t *testing.T) {
	onServers(t, func(r *rig) {
		old := r.store("A", "v5", storing{})
		early := asking{have: old.text(), bar: old.Version + 1} // every node decides on this
		answer := r.acquire("B", early)
		equal(r.t, "the first", answer.Status, statusLeased)
		equal(r.t, "its commit", r.commit("B", answer.Entry.Start, "v6", storing{}).Status, statusCommitted)
		for _, node := range []string{"C", "D", "E"} {
			answer = r.acquire(node, early)
			equal(r.t, node, answer.Status, statusFresh)
			equal(r.t, node+" gets", answer.Entry.Payload, "v6")
		}
	})
}

func TestR08_ARepeatedCommitDoesNotUndoAnExpire(t *testing.T) {
	onServers(t, func(r *rig) {
		start := r.lease("A")
		args := r.commitArgs("A", start, "v1", storing{})
		r.do(scripts.commit, args...) // the answer is lost
		r.expire(0)
		again := r.do(scripts.commit, args...) // the client repeats it
		equal(r.t, "status", again.Status, statusCommitted)
		equal(r.t, "state in the answer", again.Entry.view(again.Now).State, Stale)
		equal(r.t, "state in Redis", r.entry().view(again.Now).State, Stale)
	})
}

func TestR09_ARepeatedFailCountsOnce(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, h := range []Header{{Kind: KindLease}, r.valued(0, time.Minute, time.Hour)} {
			h = r.leased(h, "A", time.Minute)
			r.put(h, "")
			r.fail("A", h.Start, failing{}) // the answer is lost
			before := r.raw()
			equal(r.t, "the repeated fail", r.fail("A", h.Start, failing{}).Status, statusRefused)
			equal(r.t, "what stands there", r.raw(), before)
			equal(r.t, "failures", r.entry().Failures, 1)
		}
	})
}

func TestR10_AnAcquireThatLandsLateIsNoLeaseAndOneInTimeCanBeTakenBack(t *testing.T) {
	passing(t, func(r *rig) {
		deadline := asking{notAfter: r.now() + 250_000}
		time.Sleep(250 * time.Millisecond)
		equal(r.t, "in time", r.acquire("A", deadline).Status, statusLeased)
		equal(r.t, "release by a caller that does not know", r.release("A", 0).Status, statusReleased)
		time.Sleep(time.Microsecond)
		equal(r.t, "late", r.acquire("A", deadline).Status, statusLate)
		r.gone()
	})
}

func TestR18_AfterTheClockStepsBackAnEntryIsStaleOnceAndItsSuccessorFresh(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		r := newRig(t, b.Client(t))
		r.store("A", "v1", storing{})
		stepBack(b, 5*time.Second)
		answer := r.acquire("B", asking{})
		equal(t, "the entry from ahead", answer.Status, statusLeased)
		equal(t, "its payload may be served", answer.Entry.Payload, "v1")
		equal(t, "start", answer.Entry.Start, answer.Now)
		equal(t, "commit", r.commit("B", answer.Entry.Start, "v2", storing{}).Status, statusCommitted)
		answer = r.acquire("C", asking{})
		equal(t, "the new entry", answer.Status, statusFresh)
		equal(t, "state for a node", answer.Entry.view(answer.Now).State, Fresh)
	})
}

func TestR18_ALeaseFromAheadOfTheClockHasLapsed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		r := newRig(t, b.Client(t))
		start := r.lease("A")
		stepBack(b, 5*time.Second)
		equal(t, "another's acquire", r.acquire("B", asking{}).Status, statusLeased)
		equal(t, "commit of the first", r.commit("A", start, "v1", storing{}).Status, statusRefused)
	})
}

func TestR18_AStepBackOfLessThanASecondChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		r := newRig(t, b.Client(t))
		old := r.store("A", "v1", storing{})
		stepBack(b, 900*time.Millisecond)
		answer := r.acquire("B", asking{bar: old.Version + 1})
		equal(t, "leased by the bar", answer.Status, statusLeased)
		equal(t, "start", answer.Entry.Start, old.Version+1)
		r.release("B", 0)
		equal(t, "without a bar", r.acquire("B", asking{}).Status, statusFresh)
	})
}

// stepBack sets the server's clock back by d; it stands still from then on.
func stepBack(b *redistest.BubbleServer, d time.Duration) {
	b.Mini().SetTime(time.Now().Add(-d))
}

func TestR24_APlainDeleteKeepsTheHoldDownOfAnEarlierOne(t *testing.T) {
	onServers(t, func(r *rig) {
		r.delete(20 * time.Second)
		ends := r.entry().HoldDown
		r.delete(0)
		equal(r.t, "status of a commit", r.commit("A", r.lease("A"), "old row", storing{}).Status, statusCommitted)
		equal(r.t, "fresh until", r.entry().Fresh, ends)
		equal(r.t, "if error until", r.entry().IfError, ends)
	})
}

func TestR25_TheCommitOfASetWakesThoseWhoWaitedForTheLeaseItTook(t *testing.T) {
	onServers(t, func(r *rig) {
		r.listen()
		r.flagged("A")
		start := Micros(r.seize("S", seizing{}).int(3))
		equal(r.t, "wake-ups by step one", r.woken(), 0)
		equal(r.t, "commit", r.commit("S", start, "v1", storing{setter: true}).Status, statusCommitted)
		equal(r.t, "wake-ups by the commit", r.woken(), 1)
	})
}
