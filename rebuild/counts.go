package rebuild

import "sync/atomic"

// Counts are a node's counters since it was made.
type Counts struct {
	Remote        atomic.Int64 // answers served from Redis
	Loads         atomic.Int64 // loader calls
	LoadErrors    atomic.Int64 // of these, failed ones; not found is no failure
	Abandoned     atomic.Int64 // of these, given up on at LoadTimeout or on closing
	AbandonedNow  atomic.Int64 // abandoned loads that still run
	Early         atomic.Int64 // loads that nobody waited for, of what was still fresh
	Revalidated   atomic.Int64 // and of what was served stale meanwhile
	Dropped       atomic.Int64 // background work that found no slot
	Waits         atomic.Int64 // flights that waited for another node
	StaleOnError  atomic.Int64 // stale answers after a failed or slow refresh
	Backoffs      atomic.Int64 // answers with a remembered failure
	Commits       atomic.Int64 // values stored in Redis
	Refused       atomic.Int64 // values not stored: their lease had been revoked
	Unconfirmed   atomic.Int64 // commits whose outcome is unknown
	Unstorable    atomic.Int64 // values too large, or that could not be encoded
	Undecodable   atomic.Int64 // entries that could not be read and were rebuilt
	OtherCodec    atomic.Int64 // fresh entries of another codec, loaded beside
	WrongKey      atomic.Int64 // replies that belonged to another key
	LeasesLost    atomic.Int64 // leases that ended under a running load
	RedisErrors   atomic.Int64 // times a call went on without Redis
	WakeupRefused atomic.Int64 // wake-ups that Redis did not let us publish
	Heard         atomic.Int64 // messages of other nodes
	Retried       atomic.Int64 // invalidations that were confirmed later
	RetriesLost   atomic.Int64 // invalidations that were not
}
