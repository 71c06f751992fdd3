package rebuild

import (
	"strings"
	"testing"
	"time"
)

func TestAFailureWithNothingToServeLeavesItsMessage(t *testing.T) {
	onServers(t, func(r *rig) {
		for situation, h := range map[string]Header{
			"placeholder":               {Kind: KindLease},
			"earlier failure":           {Kind: KindFailed},
			"not storable":              {Kind: KindPass, Fresh: r.in(-time.Second)},
			"not found some time ago":   {Kind: KindNotFound, Fresh: r.in(-time.Second)},
			"a value past its windows":  r.valued(-time.Second, -time.Second, -time.Second),
			"a value that just ran out": r.valued(-time.Second, -time.Second, 0),
		} {
			r.put(r.leased(h, "A", time.Minute), "old")
			answer := r.fail("A", r.entry().Start, failing{backoff: 10 * time.Second, message: "no route\x00%"})
			equal(r.t, situation+": status", answer.Status, statusFailed)
			equal(r.t, situation+": failures in the answer", answer.int(4), 1)
			after(r.t, situation+": retry after", Millis(answer.int(3)), answer.Now, 10*time.Second)
			equal(r.t, situation, r.entry(), Entry{Message: "no route\x00%", Header: Header{Kind: KindFailed, Codec: '-', Compression: '-',
				Hash: r.key.Hash, RetryAfter: Millis(answer.int(3)), Failures: 1, Variable: 10}})
			between(r.t, situation+": lifetime", r.life(), 10*time.Second, 20*time.Second)
		}
	})
}

func TestAFailureLeavesWhatMayStillBeServed(t *testing.T) {
	onServers(t, func(r *rig) {
		notFound := Header{Kind: KindNotFound, Fresh: r.in(time.Minute)}
		for situation, h := range map[string]Header{
			"fresh":     r.valued(time.Minute, time.Minute, time.Hour),
			"stale":     r.valued(0, time.Minute, time.Hour),
			"if error":  r.valued(-time.Second, 0, time.Hour),
			"not found": notFound,
		} {
			h = r.leased(h, "A", time.Minute)
			h.Waiters, h.Row, h.HoldDown, h.Failures = true, 7, r.in(time.Minute), 2
			r.put(h, "v1")
			before := r.raw()
			answer := r.fail("A", h.Start, failing{message: "no route"})
			equal(r.t, situation+": changed", differing(before, r.raw()), "[retry failures token start until waiters]")
			equal(r.t, situation+": failures", r.entry().Failures, 3)
			equal(r.t, situation+": retry after", r.entry().RetryAfter, Millis(answer.int(3)))
			equal(r.t, situation+": token", r.entry().Token, "")
		}
	})
}

func TestTheBackoffInRedisDoublesUpToTheLongest(t *testing.T) {
	onServers(t, func(r *rig) {
		for failures, want := range []time.Duration{10, 20, 40, 80, 100, 100} {
			r.put(r.leased(Header{Kind: KindFailed, Failures: failures}, "A", time.Minute), "")
			answer := r.fail("A", r.entry().Start, failing{backoff: 10 * time.Second})
			after(r.t, "retry after", r.entry().RetryAfter, answer.Now, want*time.Second)
			equal(r.t, "failures", r.entry().Failures, failures+1)
			between(r.t, "lifetime", r.life(), want*time.Second, 2*want*time.Second)
		}
	})
}

func TestTheCountOfFailuresEndsAtWhatTheHeaderHolds(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, backoff := range []time.Duration{time.Second, year} {
			r.put(r.leased(Header{Kind: KindFailed, Failures: 255}, "A", time.Minute), "")
			answer := r.fail("A", r.entry().Start, failing{backoff: backoff})
			equal(r.t, "failures", r.entry().Failures, 255)
			after(r.t, "retry after", r.entry().RetryAfter, answer.Now, 10*backoff)
		}
	})
}

func TestTheBackoffTakesItsShareAndIsNeverNothing(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, tc := range []struct {
			backoff time.Duration
			jitter  int
			want    time.Duration
		}{
			{time.Second, 1000, time.Second}, {time.Second, 801, 801 * time.Millisecond},
			{time.Millisecond, 800, time.Millisecond},
		} {
			r.put(r.leased(Header{Kind: KindLease}, "A", time.Minute), "")
			answer := r.fail("A", r.entry().Start, failing{backoff: tc.backoff, jitter: tc.jitter})
			after(r.t, "retry after", Millis(answer.int(3)), answer.Now, tc.want)
		}
	})
}

func TestTheCountOutlivesTheBackoffAndGrowsWithTheNextFailure(t *testing.T) {
	passing(t, func(r *rig) {
		for failures, pause := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second} {
			equal(r.t, "failures", r.fail("A", r.lease("A"), failing{backoff: 500 * time.Millisecond}).int(4), int64(failures+1))
			time.Sleep(pause - time.Millisecond)
			equal(r.t, "status within the back-off", r.acquire("B", asking{bar: farthest}).Status, statusBackoff)
			time.Sleep(time.Millisecond)
		}
	})
}

func TestTheMemoryOfAFailureEndsWithTwiceItsBackoff(t *testing.T) {
	passing(t, func(r *rig) {
		r.fail("A", r.lease("A"), failing{backoff: time.Second})
		time.Sleep(2*time.Second - time.Millisecond)
		equal(r.t, "failures", r.entry().Failures, 1)
		time.Sleep(time.Millisecond)
		r.gone()
	})
}

func TestAStaleValueLivesOnWithTheMemoryOfAFailure(t *testing.T) {
	onServers(t, func(r *rig) {
		r.put(r.leased(r.valued(0, 20*time.Second, 20*time.Second), "A", time.Minute), "v1")
		must(r.t, r.c.PExpire(r.t.Context(), r.key.Redis, 20*time.Second).Err())
		r.fail("A", r.entry().Start, failing{backoff: time.Minute})
		between(r.t, "lifetime", r.life(), time.Minute, 2*time.Minute)
	})
}

func TestAFailureKeepsTheRowAndTheHoldDown(t *testing.T) {
	onServers(t, func(r *rig) {
		r.delete(time.Minute)
		h := r.entry().Header
		h.Row = 7
		r.put(r.leased(h, "A", time.Minute), "")
		r.fail("A", r.entry().Start, failing{message: "no"})
		equal(r.t, "hold-down", r.entry().HoldDown, h.HoldDown)
		equal(r.t, "row", r.entry().Row, 7)
		between(r.t, "lifetime", r.life(), 50*time.Second, time.Minute)
	})
}

func TestALongMessageFits(t *testing.T) {
	onServers(t, func(r *rig) {
		message := strings.Repeat("é", maxMessage/2)
		r.fail("A", r.lease("A"), failing{message: message})
		equal(r.t, "message", r.acquire("B", asking{}).Entry.Message, message)
	})
}

func TestPassDropsTheOldValueAndTellsEverybodyForAMoment(t *testing.T) {
	onServers(t, func(r *rig) {
		r.put(r.leased(r.valued(0, time.Minute, time.Hour), "A", time.Minute), "v1")
		answer := r.pass("A", r.entry().Start, 20*time.Second)
		equal(r.t, "status", answer.Status, statusPassed)
		ends := Millis(answer.Now/1000) + 20_000
		equal(r.t, "entry", r.entry(), Entry{Header: Header{Kind: KindPass, Codec: '-', Compression: '-', Hash: r.key.Hash,
			Fresh: ends, Stale: ends, IfError: ends}})
		equal(r.t, "status of the next", r.acquire("B", asking{mode: Wait}).Status, statusPass)
		between(r.t, "lifetime", r.life(), 1, 20*time.Second)
	})
}

func TestAfterPassTheLeaseCanBeHadAgain(t *testing.T) {
	passing(t, func(r *rig) {
		r.pass("A", r.lease("A"), time.Second)
		time.Sleep(time.Second)
		r.lease("B")
	})
}

func TestPassKeepsTheRowAndTheLaterHoldDown(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, left := range []time.Duration{time.Minute, -time.Minute} {
			h := r.leased(Header{Kind: KindLease, Row: 7, HoldDown: r.in(left)}, "A", time.Minute)
			r.put(h, "")
			r.pass("A", h.Start, 30*time.Second)
			equal(r.t, "row", r.entry().Row, 7)
			equal(r.t, "hold-down", r.entry().HoldDown, h.HoldDown)
			life := max(left, 30*time.Second)
			between(r.t, "lifetime", r.life(), life-20*time.Second, life)
		}
	})
}
