package cache_test

import (
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
)

// A load of 3 s under a lease of 1 s, as in the case.
func briefLease() cache.Options {
	o := settings()
	o.Lease = time.Second
	return o
}

func TestB31a_ALeaseThatAFailoverLostCostsOneLoadMore(t *testing.T) {
	inBubble(t, 3, briefLease(), func(t *testing.T, f *fleet) {
		f.query = takes(3 * time.Second)
		a := start(t.Context(), 1, "k", f.nodes[0])
		time.Sleep(500 * time.Millisecond)
		v2 := f.write("k")
		must(t, f.probe.Del(t.Context(), f.nodes[0].RedisKey("k")).Err())
		f.never("k", value("k", 1))
		time.Sleep(100 * time.Millisecond)
		b := start(t.Context(), 10, "k", f.nodes[1], f.nodes[2])
		time.Sleep(900 * time.Millisecond) // the renewals of the first have noticed
		c := start(t.Context(), 1, "k", f.nodes[0])
		allGet(t, a.wait(), value("k", 1), 3*time.Second)
		allGet(t, b.wait(), v2, 3*time.Second)
		allGet(t, c.wait(), v2, 2100*time.Millisecond)
		for _, n := range f.nodes {
			gets(t, n, "k", v2)
		}
		f.stores("k", v2)
		equal(t, "loads", f.queries(), 2)
		equal(t, "refused commits", f.sum(func(s cache.Stats) int64 { return s.Refused }), 1)
	})
}

func TestB31b_ARenewalThatWasBlockedOnceGoesOnAtTheNextTick(t *testing.T) {
	inBubble(t, 2, briefLease(), func(t *testing.T, f *fleet) {
		f.query = takes(3 * time.Second)
		a := start(t.Context(), 1, "k", f.nodes[0])
		time.Sleep(200 * time.Millisecond)
		f.mini.Freeze() // across the tick at 333 ms
		time.Sleep(400 * time.Millisecond)
		f.mini.Thaw()
		time.Sleep(800 * time.Millisecond) // the lease would be over by now
		b := start(t.Context(), 1, "k", f.nodes[1])
		allGet(t, a.wait(), value("k", 1), 3*time.Second)
		allGet(t, b.wait(), value("k", 1), 1600*time.Millisecond)
		f.stores("k", value("k", 1))
		equal(t, "loads", f.queries(), 1)
		equal(t, "leases lost", f.nodes[0].Stats().LeasesLost, 0)
	})
}

// The promoted replica has an older entry, and neither lease nor stream. It is served within its own
// windows, and no longer.
func TestB31_AnOlderEntryFromAFailoverEndsWithItsOwnWindows(t *testing.T) {
	o := settings()
	o.StaleWhileRevalidate, o.LocalTTL = cache.Off, 10*time.Second
	inBubbleWithEars(t, 3, o, func(t *testing.T, f *fleet, _ ears) {
		f.query = takes(0)
		gets(t, f.nodes[0], "k", value("k", 1))
		born, old := time.Now(), f.raw("k")
		time.Sleep(3 * time.Second)
		f.write("k")
		must(t, f.nodes[0].Delete(t.Context(), "k"))
		for _, n := range f.nodes {
			n.link.Cut()
		}
		must(t, f.probe.FlushAll(t.Context()).Err())
		must(t, f.probe.Set(t.Context(), f.nodes[0].RedisKey("k"), old, 7*time.Second).Err())
		time.Sleep(o.TTL - time.Since(born))
		for _, n := range f.nodes {
			gets(t, n, "k", value("k", 2))
		}
	})
}
