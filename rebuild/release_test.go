package rebuild

import (
	"testing"
	"time"
)

func TestAReleaseRemovesAPlaceholderThatIsThereForNothingElse(t *testing.T) {
	onServers(t, func(r *rig) {
		equal(r.t, "status", r.release("A", r.lease("A")).Status, statusReleased)
		r.gone()
		r.lease("A")
		equal(r.t, "status, whatever the start", r.release("A", 0).Status, statusReleased)
		r.gone()
	})
}

func TestAReleaseLeavesTheRestOfAnEntry(t *testing.T) {
	onServers(t, func(r *rig) {
		for situation, h := range map[string]Header{
			"value":     r.valued(0, time.Minute, time.Hour),
			"not found": {Kind: KindNotFound, Fresh: r.in(-time.Second)},
			"failure":   {Kind: KindFailed, Failures: 3},
		} {
			h = r.leased(h, "A", time.Minute)
			h.Waiters = true
			r.put(h, "text")
			before := r.raw()
			equal(r.t, situation+": status", r.release("A", h.Start).Status, statusReleased)
			equal(r.t, situation+": changed", differing(before, r.raw()), "[token start until waiters]")
			equal(r.t, situation+": token", r.entry().Token, "")
			equal(r.t, situation+": acquire", r.acquire("B", asking{mode: Look}).Status, statusIdle)
		}
	})
}

func TestAReleaseLeavesAHoldDown(t *testing.T) {
	onServers(t, func(r *rig) {
		r.delete(time.Minute)
		ends := r.entry().HoldDown
		r.release("A", r.lease("A"))
		equal(r.t, "entry", r.entry().Header, Header{Kind: KindLease, Codec: '-', Compression: '-', Hash: r.key.Hash, HoldDown: ends})
		between(r.t, "lifetime", r.life(), 30*time.Second, time.Minute)
	})
}

func TestOnlyTheOwnLeaseIsReleased(t *testing.T) {
	onServers(t, func(r *rig) {
		start := r.lease("A")
		before := r.raw()
		for situation, answer := range map[string]reply{
			"another token":                r.release("B", start),
			"another token, whatever":      r.release("B", 0),
			"an earlier lease of the same": r.release("A", start-1),
			"a later lease of the same":    r.release("A", start+1),
		} {
			equal(r.t, situation, answer.Status, statusGone)
		}
		equal(r.t, "what stands there", r.raw(), before)
	})
}

func TestALeaseThatWasGrantedIsSparedByTheReleaseOfWhatMayHaveComeTwice(t *testing.T) {
	onServers(t, func(r *rig) {
		start := r.lease("A")
		before := r.raw()
		equal(r.t, "status", r.releaseBut("A", start).Status, statusGone)
		equal(r.t, "what stands there", r.raw(), before)
		r.delete(0)
		r.tick()
		r.lease("A") // the first attempt has landed
		equal(r.t, "status of a ghost", r.releaseBut("A", start).Status, statusReleased)
		r.gone()
	})
}

func TestALeaseThatRanOutIsReleasedToo(t *testing.T) {
	onServers(t, func(r *rig) {
		r.put(r.leased(Header{Kind: KindLease}, "A", -time.Second), "")
		equal(r.t, "status", r.release("A", 0).Status, statusReleased)
		r.gone()
	})
}
