package cache

import (
	"sync/atomic"

	"github.com/levee-cache/levee/internal/link"
)

// Stats are a cache's counters since New. They are read one by one, so sums may be off by calls
// under way.
type Stats struct {
	Hits     int64 // answers from memory, fresh ones and "not found"
	Stale    int64 // answers from memory, stale ones
	Remote   int64 // answers from Redis
	Loads    int64 // calls of the loader
	Failures int64 // of these, failed ones; not found is none
	// EarlyRefreshes and StaleRefreshes count the loads that nobody waited for, of values still
	// fresh and of values served stale meanwhile; Dropped the background work that found no
	// slot and was left to a later hit.
	EarlyRefreshes, StaleRefreshes, Dropped int64
	// Abandoned counts loads given up on at LoadTimeout, AbandonedNow those that still run.
	Abandoned, AbandonedNow int64
	Waits                   int64 // reads that waited for another node's load
	StaleOnError            int64 // stale answers since the refresh failed or was slow
	Backoffs                int64 // answers with a remembered failure
	Commits                 int64 // values stored in Redis
	Refused                 int64 // values not stored since an invalidation came before, or a newer row version
	Unconfirmed             int64 // values of which it is not known whether they were stored
	Unstorable              int64 // values too large to store, or not encodable
	LocalRefused            int64 // copies not held in memory: above LocalMaxBytes, asked for too rarely, or in a burst
	Undecodable             int64 // entries that could not be read and were rebuilt
	OtherCodec              int64 // fresh entries of another codec, loaded beside
	WrongKey                int64 // replies that belonged to another key: look into this
	LeasesLost              int64 // leases that ended under a running load
	RedisErrors             int64 // times a call went on without Redis
	WakeupRefused           int64 // wake-ups that Redis did not let us publish
	// Messages counts the invalidations of other nodes that were heard of, Gaps the times that some
	// may have been missed: then every copy is verified before it is served again, by all caches of the
	// client. Deaf is set while messages cannot be received: a copy is believed for 1 s at most then.
	Messages, Gaps int64
	Deaf           bool
	// DeletesWaiting is how many invalidations that Redis did not confirm are being tried again;
	// DeletesRetried counts those that it confirmed later, DeletesLost those that it did not.
	DeletesWaiting, DeletesRetried, DeletesLost int64
}

// Stats returns the counters.
func (c *Cache[K, V]) Stats() Stats {
	n := &c.node.Counts
	gaps, deaf := c.node.Hearing()
	return Stats{
		Hits: c.hits.sum(), Stale: c.stale.sum(), Remote: n.Remote.Load(),
		Loads: n.Loads.Load(), Failures: n.LoadErrors.Load(),
		EarlyRefreshes: n.Early.Load(), StaleRefreshes: n.Revalidated.Load(), Dropped: n.Dropped.Load(),
		Abandoned: n.Abandoned.Load(), AbandonedNow: n.AbandonedNow.Load(),
		Waits: n.Waits.Load(), StaleOnError: n.StaleOnError.Load(), Backoffs: n.Backoffs.Load(),
		Commits: n.Commits.Load(), Refused: n.Refused.Load(), Unconfirmed: n.Unconfirmed.Load(),
		Unstorable: n.Unstorable.Load(), Undecodable: n.Undecodable.Load(), OtherCodec: n.OtherCodec.Load(),
		WrongKey: n.WrongKey.Load(), LeasesLost: n.LeasesLost.Load(), RedisErrors: n.RedisErrors.Load(),
		WakeupRefused: n.WakeupRefused.Load(), LocalRefused: c.local.refusals(),
		Messages: n.Heard.Load(), Gaps: gaps, Deaf: deaf,
		DeletesWaiting: int64(c.node.Retries()), DeletesRetried: n.Retried.Load(), DeletesLost: n.RetriesLost.Load(),
	}
}

// counter is one that many cores add to: each to a cache line drawn by the low bits of the
// clock, which are as good as random and have been read already.
type counter [8]struct {
	atomic.Int64
	_ [56]byte
}

func (c *counter) add(now link.Instant) { c[uint64(now)%uint64(len(c))].Add(1) }

func (c *counter) sum() (n int64) {
	for i := range c {
		n += c[i].Load()
	}
	return n
}
