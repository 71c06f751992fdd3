package rebuild

import (
	"testing"
	"time"
)

const (
	statusLost     Status = "lost"
	statusPassed   Status = "passed"
	statusReleased Status = "released"
	statusDeleted  Status = "deleted"
	statusExpired  Status = "expired"
	statusGone     Status = "gone"
)

func TestARenewalMovesTheEndOfTheLease(t *testing.T) {
	onServers(t, func(r *rig) {
		start := r.lease("A")
		before := r.raw()
		answer := r.renew("A", start, time.Minute)
		equal(r.t, "status", answer.Status, statusHeld)
		after(r.t, "end", r.entry().LeaseUntil, answer.Now, time.Minute)
		equal(r.t, "changed", differing(before, r.raw()), "[until]")
		between(r.t, "lifetime", r.life(), 31*time.Second, time.Minute)
	})
}

func TestARenewalDoesNotShortenTheLifeOfAValue(t *testing.T) {
	onServers(t, func(r *rig) {
		r.put(r.leased(r.valued(0, time.Minute, time.Hour), "A", time.Second), "v1")
		equal(r.t, "status", r.renew("A", r.entry().Start, 3*time.Second).Status, statusHeld)
		between(r.t, "lifetime", r.life(), 59*time.Minute, time.Hour)
	})
}

func TestALeaseThatRanOutIsRenewedWhileNobodyElseHasIt(t *testing.T) {
	onServers(t, func(r *rig) {
		r.put(r.leased(r.valued(0, time.Minute, time.Hour), "A", -time.Second), "v1")
		answer := r.renew("A", r.entry().Start, 3*time.Second)
		equal(r.t, "status", answer.Status, statusHeld)
		equal(r.t, "another's acquire", r.acquire("B", asking{}).Status, statusHeld)
	})
}

// strangers are entries in which the lease of A that started at start is not, or not any more.
var strangers = map[string]func(r *rig, start Micros){
	"nothing":              func(*rig, Micros) {},
	"no lease":             func(r *rig, _ Micros) { r.put(r.valued(time.Minute, time.Minute, time.Hour), "v2") },
	"the lease of another": func(r *rig, _ Micros) { r.put(r.leased(Header{Kind: KindLease}, "B", time.Minute), "") },
	"a lease of the same start": func(r *rig, start Micros) {
		h := r.leased(Header{Kind: KindLease}, "B", time.Minute)
		h.Start = start
		r.put(h, "")
	},
	"a lease of the same token": func(r *rig, start Micros) {
		h := r.leased(Header{Kind: KindLease}, "A", time.Minute)
		h.Start = start + 1
		r.put(h, "")
	},
	"a failure":            func(r *rig, _ Micros) { r.put(Header{Kind: KindFailed, RetryAfter: r.in(time.Minute)}, "no") },
	"somebody else's text": func(r *rig, _ Micros) { r.putRaw("hello", time.Hour) },
	"another key's lease": func(r *rig, start Micros) {
		h := r.leased(Header{Kind: KindLease}, "A", time.Minute)
		h.Start, h.Hash = start, r.key.Hash+1
		r.putRaw(string(h.format()), time.Hour)
	},
	"an entry that was cut": func(r *rig, start Micros) {
		h := r.leased(Header{Kind: KindLease, Body: 2}, "A", time.Minute)
		h.Start, h.Hash = start, r.key.Hash
		r.putRaw(string(h.format())+"v", time.Hour)
	},
}

func TestALeaseThatIsNotThereCanDoNothing(t *testing.T) {
	onServers(t, func(r *rig) {
		r.listen()
		for name, put := range strangers {
			start := r.now() - 1_000_000
			r.remove()
			put(r, start)
			before := r.raw()
			for what, call := range map[string]struct {
				do   func() reply
				want Status
			}{
				"renew":  {func() reply { return r.renew("A", start, 3*time.Second) }, statusLost},
				"commit": {func() reply { return r.commit("A", start, "v1", storing{}) }, statusRefused},
				"pass":   {func() reply { return r.pass("A", start, time.Second) }, statusRefused},
				"fail":   {func() reply { return r.fail("A", start, failing{}) }, statusRefused},
			} {
				what = name + ", " + what
				answer := call.do()
				equal(r.t, what+": status", answer.Status, call.want)
				equal(r.t, what+": wake-up in the answer", answer.int(2), 1)
				equal(r.t, what+": wake-ups", r.woken(), 1)
				equal(r.t, what+": what stands there", r.raw(), before)
			}
			equal(r.t, name+", release", r.release("A", start).Status, statusGone)
			equal(r.t, name+": wake-ups", r.woken(), 0)
			equal(r.t, name+": what stands there", r.raw(), before)
		}
	})
}
