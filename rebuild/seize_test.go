package rebuild

import (
	"math"
	"testing"
	"time"
)

func TestASeizeRemovesTheValueAndLeavesTheCallersLease(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, s := range situations {
			r.remove()
			s.put(r)
			answer := r.seize("S", seizing{lease: 20 * time.Second})
			equal(r.t, s.name+": status", answer.Status, statusSeized)
			e := r.entry()
			equal(r.t, s.name+": kind", e.Kind, KindLease)
			equal(r.t, s.name+": payload", e.Payload, "")
			equal(r.t, s.name+": token", e.Token, token("S"))
			equal(r.t, s.name+": start in the answer", Micros(answer.int(3)), e.Start)
			after(r.t, s.name+": end", e.LeaseUntil, answer.Now, 20*time.Second)
			between(r.t, s.name+": lifetime", r.life(), time.Second, 31*time.Second)
			equal(r.t, s.name+": commit", r.commit("S", e.Start, "v9", storing{setter: true}).Status, statusCommitted)
			equal(r.t, s.name+": payload", r.entry().Payload, "v9")
		}
	})
}

func TestASeizeAgainWithTheOwnLiveLeaseChangesNothing(t *testing.T) {
	onServers(t, func(r *rig) {
		first := r.seize("S", seizing{})
		before := r.raw()
		again := r.seize("S", seizing{holdDown: time.Minute, lease: time.Hour})
		equal(r.t, "status", again.Status, statusSeized)
		equal(r.t, "start", again.int(3), first.int(3))
		equal(r.t, "what stands there", r.raw(), before)
	})
}

func TestALateSeizeOnlyDeletes(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, s := range situations {
			r.remove()
			s.put(r)
			equal(r.t, s.name+": status", r.seize("S", seizing{notAfter: r.now() - 1}).Status, statusLate)
			if s.name == "a hold-down" {
				equal(r.t, "token", r.entry().Token, "")
				continue
			}
			r.gone()
		}
	})
}

func TestASeizeWithALowerRowVersionChangesNothing(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, kind := range []Kind{KindValue, KindLease} {
			for _, tc := range []struct {
				there, row uint64
				want       Status
			}{
				{7, 6, statusOlder}, {7, 7, statusSeized}, {7, 8, statusSeized}, {7, 0, statusSeized},
				{0, 1, statusSeized}, {16, 9, statusOlder}, {1 << 63, 1, statusOlder}, {1, math.MaxUint64, statusSeized},
			} {
				for _, notAfter := range []Micros{0, 1} {
					h := r.leased(r.valued(time.Minute, time.Minute, time.Hour), "A", time.Minute)
					h.Kind, h.Row = kind, tc.there
					r.put(h, "")
					before := r.raw()
					answer := r.seize("S", seizing{row: tc.row, holdDown: time.Minute, notAfter: notAfter})
					switch {
					case tc.want == statusOlder:
						equal(r.t, "status", answer.Status, statusOlder)
						equal(r.t, "what stands there", r.raw(), before)
					case notAfter == 0:
						equal(r.t, "status", answer.Status, statusSeized)
						equal(r.t, "row", r.entry().Row, max(tc.there, tc.row))
					default:
						equal(r.t, "status", answer.Status, statusLate)
						equal(r.t, "row", r.entry().Row, tc.there)
					}
				}
			}
		}
	})
}

func TestAnOlderWritersSetDoesNotReplaceANewerRow(t *testing.T) { // R17
	onServers(t, func(r *rig) {
		newer := r.seize("N", seizing{row: 2})
		older := r.seize("O", seizing{row: 1})
		equal(r.t, "the older", older.Status, statusOlder)
		r.commit("N", Micros(newer.int(3)), "v2", storing{row: 2, setter: true})
		equal(r.t, "the older, again", r.seize("O", seizing{row: 1}).Status, statusOlder)
		equal(r.t, "payload", r.entry().Payload, "v2")
		equal(r.t, "row", r.entry().Row, 2)
	})
}

func TestASeizedKeyKeepsTheWaitersForTheCommit(t *testing.T) {
	onServers(t, func(r *rig) {
		r.listen()
		r.flagged("A")
		answer := r.seize("S", seizing{})
		equal(r.t, "flag", r.entry().Waiters, true)
		equal(r.t, "wake-ups by the seize", r.woken(), 0)
		equal(r.t, "wake-up in the answer", answer.int(2), 0)
		r.commit("S", Micros(answer.int(3)), "v1", storing{setter: true})
		equal(r.t, "wake-ups by the commit", r.woken(), 1)
	})
}

func TestASeizeStartsAboveTheVersionItReplaces(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, tc := range []struct{ version, start, want Micros }{
			{-5_000_000, -4_000_000, 0}, {900_000, 0, 900_001}, {0, 900_000, 900_001}, {5_000_000, -1, 0},
		} {
			h := r.leased(r.valued(time.Minute, time.Minute, time.Hour), "A", -time.Second)
			base := r.now()
			h.Version, h.Start = base+tc.version, base+tc.start
			r.put(h, "v1")
			answer := r.seize("S", seizing{})
			want := max(answer.Now, base+tc.want)
			if tc.want == 0 {
				want = answer.Now
			}
			equal(r.t, "start", Micros(answer.int(3)), want)
		}
	})
}

func TestASeizeLivesAsLongAsItsHoldDown(t *testing.T) {
	onServers(t, func(r *rig) {
		answer := r.seize("S", seizing{lease: time.Second, holdDown: time.Minute})
		after(r.t, "hold-down", r.entry().HoldDown, answer.Now, time.Minute)
		between(r.t, "lifetime", r.life(), 30*time.Second, time.Minute)
	})
}

func TestASeizedKeyThatIsNotCommittedIsFreeAgainWithItsLease(t *testing.T) {
	passing(t, func(r *rig) {
		r.seize("S", seizing{lease: time.Second})
		equal(r.t, "meanwhile", r.acquire("A", asking{}).Status, statusHeld)
		time.Sleep(time.Second)
		r.gone()
	})
}
