package rebuild

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"time"
)

// Policy is how a Node treats its entries. Package cache makes it out of valid options.
type Policy struct {
	TTL         time.Duration
	Jitter      float64       // share of TTL by which a fresh time may be shorter
	Stale       time.Duration // length of the windows after it
	IfError     time.Duration // not below Stale
	NegativeTTL time.Duration // 0: "not found" is not kept

	EarlyRefresh float64 // XFetch's beta; 0: off

	Backoff      time.Duration // the first one
	LoadTimeout  time.Duration
	WaitTimeout  time.Duration // 0: as long as a holder lives
	HoldDown     time.Duration // 0: none
	RetryDeletes time.Duration // 0: none
	News         News
	Lease        time.Duration

	LocalTTL     time.Duration
	RedisTimeout time.Duration

	MaxLoads      int
	MaxValueBytes int

	Redact func(error) string
	Logger *slog.Logger
}

const (
	grace         = time.Second           // how long a refresh may hold up a caller with a stale value at hand
	passFor       = time.Second           // how long nodes know that a value may not be stored
	unsureFor     = time.Second           // how long a value is believed whose commit was not confirmed
	unheardFor    = time.Second           // how long a copy is believed while changes may go unheard
	backoffGrowth = 10                    // the longest back-off, in first ones
	firstPause    = 50 * time.Millisecond // between polls and between claims
	lastPause     = 500 * time.Millisecond
	longest       = 365 * 24 * time.Hour // the longest fresh time
)

// windows draws the lengths of the windows of a new entry, all from its commit. ttl is its own,
// or 0.
func (p Policy) windows(kind Kind, ttl time.Duration) (fresh, stale, ifError time.Duration) {
	ttl = min(ttl, longest)
	if kind == KindNotFound {
		ttl = cmp.Or(ttl, p.NegativeTTL)
		return ttl, ttl, ttl
	}
	fresh = jittered(cmp.Or(ttl, p.TTL), p.Jitter, rand.Float64())
	return fresh, fresh + p.Stale, fresh + p.IfError
}

// jittered is drawn from [(1-j)·d, d] by r in [0, 1), and never below a millisecond.
func jittered(d time.Duration, j, r float64) time.Duration {
	return max(d-time.Duration(j*r*float64(d)), min(d, time.Millisecond))
}

// pauseAfter is the back-off after so many failures in a row: doubling up to ten times the
// first, shortened by up to a fifth so that nodes do not try in step.
func (p Policy) pauseAfter(failures int, r float64) time.Duration {
	longest := backoffGrowth * p.Backoff
	return jittered(min(p.Backoff<<min(failures-1, 8), longest), backoffJitter, r)
}

const backoffJitter = 0.2
