package cache

import (
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// Off switches a feature off in a numeric field of [Options], where zero means the default.
const Off = -1

// Options say how a cache treats its entries. The zero value of a field is its default; [Off]
// switches a feature off where the field says so; any other negative value is refused by New.
// Lifetimes are kept in milliseconds, rounded up, and may be up to a year long.
type Options struct {
	// Redis is the client of the shared tier: a *redis.Client, *redis.ClusterClient or any
	// other UniversalClient but redis.Ring. It is never closed by the cache and none of its
	// options is changed. Nil protects this process only; values are encoded all the same, so
	// that adding Redis later changes nothing: what the codec cannot encode is not kept, and
	// what it leaves out (unexported fields, under JSON) is missing from what Set keeps.
	Redis redis.UniversalClient

	// TTL is how long a value is fresh, counted from when it is stored. Required.
	TTL time.Duration

	// TTLJitter is the share of TTL by which an entry's fresh time may be shorter, so that
	// entries stored together do not expire together: it is drawn from [(1-j)·TTL, TTL].
	// From 0 to 1; default 0.10; Off for none.
	TTLJitter float64

	// StaleWhileRevalidate is how long after its fresh time a value is served at once while
	// one node refreshes it (RFC 5861). Default min(TTL, 10 s), or a set StaleIfError if that
	// is shorter; Off for never.
	StaleWhileRevalidate time.Duration

	// StaleIfError is how long after its fresh time a value is served if the refresh fails,
	// or takes more than a second (RFC 5861). Default, and at the least,
	// StaleWhileRevalidate; Off for no longer than that.
	StaleIfError time.Duration

	// NegativeTTL is how long "not found" is believed. It is never served stale. Default
	// min(TTL, 5 s); Off to ask the loader each time, once per node at a time.
	NegativeTTL time.Duration

	// ErrorBackoff is how long a key is left alone after its load has failed, on all nodes;
	// callers meanwhile get the stale value, or the error at once. It doubles with each failure
	// in a row, to ten times this, and is shortened at random by up to a fifth. Default
	// 500 ms; Off for none.
	ErrorBackoff time.Duration

	// EarlyRefresh lets a value be refreshed in the background before it expires, by one node of
	// the fleet, so that keys that are read often never expire (XFetch). A reader in the last
	// fifth of the fresh time begins it if
	//
	//	now - beta·cost·ln(random) >= end of freshness, random from (0, 1]
	//
	// cost being what a load takes, smoothed over the last ones, and beta this number. Default
	// 1.0, the optimum of A. Vattani, F. Chierichetti, K. Lowenstein: Optimal Probabilistic
	// Cache Stampede Prevention, VLDB 2015; more begins earlier, at most 100. Off for none.
	EarlyRefresh float64

	// LoadTimeout is the deadline of one load: its context ends, and a load that goes on all
	// the same is abandoned, its result dropped. Default 30 s.
	LoadTimeout time.Duration

	// WaitTimeout is how long a caller with nothing to serve waits for another node's load
	// before this node loads by itself, once, keeping the result to itself. Default Off: it
	// waits as long as a holder of the lease lives.
	WaitTimeout time.Duration

	// WaitFresh is how long a caller for whom there is a stale value waits for the new one; then, or
	// if the load fails, it is served the stale one. It bounds every wait on the way: for another
	// node, for a slot, for the load. Then a copy that is not believed any more is
	// verified, which takes up to RedisTimeout more if Redis does not answer. Default 0: it is served at once.
	WaitFresh time.Duration

	// Lease is the lifetime of the rebuild lease, renewed every third of it while the load
	// runs. It is what a crash of the loading node may cost the others. Default 3 s, at least
	// 100 ms.
	Lease time.Duration

	// LocalTTL is how long a copy in this process is believed without asking Redis. Nodes tell
	// each other of invalidations at once; it bounds how long this node may serve what
	// another node has deleted if that is never told. While messages cannot be received, no more
	// than 1 s of it is used. Default min(TTL, 30 s). Without Redis a copy is believed as long as
	// it lives.
	LocalTTL time.Duration

	// StreamLength is about how many messages the stream keeps by which nodes tell each other of
	// invalidations: a node that was cut off for longer than those took asks Redis about each of its
	// copies before it serves it again. Default 10,000, about 2 MB; Off for no messages: LocalTTL is
	// no more than 1 s then. All caches with one Prefix share a stream; the least length counts.
	StreamLength int64

	// StreamLife is how long the stream outlives the last message. Default 1 h.
	StreamLife time.Duration

	// Tracking lets changes of entries by other programs (a DEL, an eviction) reach the copies in this
	// process: Redis reports them over two connections of their own ("CLIENT TRACKING" in broadcast mode,
	// from Redis 6.0). Every change is reported to every node, also by Levee's own leases and
	// commits, and makes the node verify its copy by one read of the entry's header on the next use; so it is off by
	// default. A change of a key above 1 KiB makes it verify all. New fails if Redis refuses. Loads that run are not
	// covered: newcomers give those up within a second, as without it.
	Tracking bool

	// HoldDown is for databases whose replicas lag: a value that is loaded within so long after a Delete,
	// Expire, Clear, InvalidateTag or ExpireTag, and may come from a replica that had not caught up, is served
	// no longer than to its end. Default Off.
	HoldDown time.Duration

	// RetryDeletes is how long an invalidation that Redis did not confirm is tried again in the
	// background, the newest of each key, for up to 16,384 keys. A Set is tried again as a Delete. Default
	// TTL; Off for not at all.
	RetryDeletes time.Duration

	// LocalMaxBytes is the budget of the local tier: an entry costs its encoded size, its key
	// and about 400 bytes. Default 64 MiB, at least 64 KiB; Off for no local tier.
	LocalMaxBytes int64

	// RedisTimeout is all that one call may lose to Redis, whatever timeouts the client has;
	// then it goes on without. Default 250 ms.
	RedisTimeout time.Duration

	// MaxConcurrentLoads is how many loads of this cache run at once. Ten times as many may wait
	// for a slot, each for up to LoadTimeout before its own LoadTimeout begins; who finds the queue full is served
	// stale, else gets [ErrOverloaded]. Background refreshes take up to a quarter of the slots, at
	// least one, and never wait. What a load needs of this or another cache takes no slot: it
	// would wait for itself. An abandoned load gives its slot back; once a quarter of this number
	// are abandoned and still run, their keys are not loaded again until they end. Default 256.
	MaxConcurrentLoads int

	// MaxValueBytes is the size from which an encoded value is returned but not stored: large
	// values hold up the whole Redis server. Default 1 MiB.
	MaxValueBytes int

	// Prefix is the first part of every Redis key. Default "levee1": 1 is the wire format.
	// Letters, digits, '.', '_' and '-'.
	Prefix string

	// Schema becomes part of the Redis key. Change it when the meaning of the stored value
	// changes, so that old and new versions of a service do not read each other's. Characters
	// as in Prefix.
	Schema string

	// Clone hands every caller a copy of its own, made by the value's method Clone() V, which
	// New requires then. Without it values are shared between callers and are read-only.
	Clone bool

	// RedactError makes the text of a failed load that other nodes and [BackoffError] may
	// show. Default: the error's own text. It is cut at 256 bytes.
	RedactError func(error) string

	// Logger is told what goes wrong. Default: nobody.
	Logger *slog.Logger
}
