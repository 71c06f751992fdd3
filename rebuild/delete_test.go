package rebuild

import (
	"testing"
	"time"
)

func TestADeleteLeavesNothing(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, s := range situations {
			if s.name == "a hold-down" {
				continue // it stays: see the next test
			}
			s.put(r)
			equal(r.t, s.name+": status", r.delete(0).Status, statusDeleted)
			r.gone()
		}
	})
}

func TestTheLaterHoldDownStays(t *testing.T) {
	onServers(t, func(r *rig) {
		for what, remove := range map[string]func(time.Duration) reply{
			"delete": r.delete,
			"expire": r.expire,
			"seize":  func(d time.Duration) reply { return r.seize("S", seizing{holdDown: d}) },
			"late":   func(d time.Duration) reply { return r.seize("S", seizing{holdDown: d, notAfter: 1}) },
		} {
			for _, there := range []Kind{KindLease, KindValue, KindPass, KindNotFound, KindFailed} {
				for _, d := range []time.Duration{0, time.Second, time.Minute} {
					h := r.valued(time.Minute, time.Minute, time.Hour)
					h.Kind, h.HoldDown, h.RetryAfter = there, r.in(30*time.Second), r.in(time.Minute)
					r.put(h, "")
					answer := remove(d)
					want := max(h.HoldDown, Millis(answer.Now/1000)+Millis(d/time.Millisecond))
					equal(r.t, what+" over "+string(there)+": hold-down", r.entry().HoldDown, want)
				}
			}
		}
	})
}

func TestADeleteWithAHoldDownLeavesAPlaceholderAsLongAsThat(t *testing.T) {
	onServers(t, func(r *rig) {
		h := r.leased(r.valued(time.Minute, time.Minute, time.Hour), "A", time.Minute)
		h.Row = 7
		r.put(h, "v1")
		answer := r.delete(20 * time.Second)
		equal(r.t, "entry", r.entry(), Entry{Header: Header{Kind: KindLease, Codec: '-', Compression: '-', Hash: r.key.Hash,
			Row: 7, HoldDown: Millis(answer.Now/1000) + 20_000}})
		between(r.t, "lifetime", r.life(), time.Second, 20*time.Second)
	})
}

func TestAHoldDownOnNothingIsRemembered(t *testing.T) {
	onServers(t, func(r *rig) {
		answer := r.delete(20 * time.Second)
		after(r.t, "hold-down", r.entry().HoldDown, answer.Now, 20*time.Second)
	})
}

func TestAnExpiredValueIsStaleFromNowForAsLongAsItWouldHaveBeen(t *testing.T) {
	onServers(t, func(r *rig) {
		h := r.leased(r.valued(time.Minute, 3*time.Minute, time.Hour), "A", time.Minute)
		h.Failures, h.Row, h.Waiters = 3, 7, true
		r.put(h, "v1")
		before := r.raw()
		answer := r.expire(0)
		equal(r.t, "status", answer.Status, statusExpired)
		equal(r.t, "changed", differing(before, r.raw()), "[fresh stale iferror token start until waiters]")
		e := r.entry()
		after(r.t, "fresh", e.Fresh, answer.Now, 0)
		equal(r.t, "stale, from the end of freshness", e.Stale-e.Fresh, h.Stale-h.Fresh)
		equal(r.t, "if error, from the end of freshness", e.IfError-e.Fresh, h.IfError-h.Fresh)
		equal(r.t, "state", e.view(answer.Now).State, Stale)
		equal(r.t, "the next acquire", r.acquire("B", asking{}).Entry.Payload, "v1")
	})
}

func TestExpiringWhatIsStaleMovesNoWindow(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, stale := range []time.Duration{time.Minute, -time.Second} {
			r.put(r.leased(r.valued(-2*time.Second, stale, time.Hour), "A", time.Minute), "v1")
			before := r.raw()
			r.expire(0)
			r.expire(0)
			equal(r.t, "changed", differing(before, r.raw()), "[token start until]")
		}
	})
}

func TestExpireRemovesWhatIsNeverServedStale(t *testing.T) {
	onServers(t, func(r *rig) {
		for situation, h := range map[string]Header{
			"not found":                {Kind: KindNotFound, Fresh: r.in(time.Minute), Stale: r.in(time.Minute), IfError: r.in(time.Minute)},
			"not storable":             {Kind: KindPass, Fresh: r.in(time.Minute)},
			"placeholder":              {Kind: KindLease},
			"a value past its windows": r.valued(-time.Second, -time.Second, -time.Second),
			"a failure some time ago":  {Kind: KindFailed, Failures: 3, RetryAfter: r.in(-time.Second)},
		} {
			r.put(r.leased(h, "A", time.Minute), "")
			r.expire(0)
			equal(r.t, situation, r.raw(), "")
		}
		equal(r.t, "on nothing", r.expire(0).Status, statusExpired)
		r.gone()
	})
}

func TestExpireDoesNotForgetAFailure(t *testing.T) {
	onServers(t, func(r *rig) {
		r.put(r.leased(Header{Kind: KindFailed, Failures: 3, RetryAfter: r.in(time.Minute)}, "A", time.Minute), "no route")
		before := r.raw()
		r.expire(0)
		equal(r.t, "changed", differing(before, r.raw()), "[token start until]")
		equal(r.t, "acquire", r.acquire("B", asking{}).Status, statusBackoff)
	})
}

func TestAnExpiredValueWithAHoldDownIsKept(t *testing.T) {
	onServers(t, func(r *rig) {
		r.put(r.valued(time.Minute, 2*time.Minute, 3*time.Minute), "v1")
		must(r.t, r.c.PExpire(r.t.Context(), r.key.Redis, 3*time.Minute).Err())
		answer := r.expire(time.Hour)
		after(r.t, "hold-down", r.entry().HoldDown, answer.Now, time.Hour)
		equal(r.t, "payload", r.entry().Payload, "v1")
		between(r.t, "lifetime", r.life(), time.Hour-time.Minute, time.Hour)
	})
}
