package cache_test

import (
	"context"
	"errors"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
)

// question is a call under way.
type question struct {
	node    *randomNode
	deed    deed
	began   time.Duration
	until   time.Duration // when its caller leaves
	known   int           // so many confirmations had come
	version int           // what the database held
	there   bool          // what may be served at once was in Redis
}

// answer is what a call brought.
type answer struct {
	value string
	state cache.State // stale where it is not told
	none  bool        // nothing is cached
	err   error
}

// judge tells whether an answer was allowed.
func (l *ledger) judge(q *question, a answer) {
	low, rule := l.floorOf(q)
	life := l.w.stale
	if a.state == cache.StateFresh {
		life = l.w.fresh
	}
	v := l.versionOf(a.value)
	switch at, made := l.made[v]; {
	case a.none:
	case isAbsence(a.err):
		if !l.absent(low, l.w.negative) {
			l.broken(rule, "%v %v: not found, but version %d is the oldest that it may see", q.node, q.deed, low)
		}
	case a.err != nil:
		l.excuse(q, a.err)
	case v < low:
		l.broken(rule, "%v %v: %q, but version %d is the oldest that it may see", q.node, q.deed, a.value, low)
	case !made || l.w.now()-at > life:
		l.broken("windows", "%v %v: %q was last brought at %v, and lives for %v", q.node, q.deed, a.value, at, life)
	case q.deed == doGetFresh && a.state != cache.StateFresh:
		l.broken("Fresh", "%v %v: %q is stale", q.node, q.deed, a.value)
	}
}

// floorOf is the oldest version that may be the answer, and the rule that says so. P5: a node
// knows of its own invalidations at once, of others' after LocalTTL.
func (l *ledger) floorOf(q *question) (low int, rule string) {
	low, rule = 1, "value"
	for _, c := range l.confirmed[:q.known] {
		switch {
		case c.version <= low:
		case c.node == q.node:
			low, rule = c.version, "P5 on the same node"
		case q.began > c.at+l.w.elsewhere && !q.node.troubledSince(c.at):
			low, rule = c.version, "P5 on other nodes"
		}
	}
	if q.deed == doRefresh && q.version > low {
		low, rule = q.version, "Refresh"
	}
	return low, rule
}

// inTime judges how long a call took. P6: a caller that leaves is gone at once. P2: nobody waits
// for what is there already, but for those who have joined a load that was revoked, or that
// goes on without Redis.
func (l *ledger) inTime(q *question) {
	now, before := l.w.now(), q.began-l.w.o.LoadTimeout-l.w.lag
	took, late := now-q.began, now-min(q.until, now)
	switch {
	case late > time.Millisecond, took > l.w.wait:
		l.broken("P6", "%v %v took %v, %v longer than its caller waited", q.node, q.deed, took, late)
	case (q.deed == doGet || q.deed == doGetEntry) && q.there && took > l.w.o.RedisTimeout && !l.revokedSince(before) && !q.node.troubledSince(before):
		l.broken("P2", "%v %v took %v, but there was something to serve", q.node, q.deed, took)
	}
}

// excuse tells whether an error was allowed.
func (l *ledger) excuse(q *question, err error) {
	now, o := l.w.now(), l.w.o
	troubled := q.node.troubledSince(q.began - l.w.lag)
	_, unconfirmed := errors.AsType[*cache.InvalidationError](err)
	_, backoff := errors.AsType[*cache.BackoffError](err)
	_, panicked := errors.AsType[*loader.PanicError](err)
	switch {
	case unconfirmed && troubled, q.deed == doPeek && troubled:
	case isContextError(err):
		if now < q.until {
			l.broken("P6", "%v %v: %v, but its caller is still there", q.node, q.deed, err)
		}
	case panicked, errors.Is(err, errDatabase), errors.Is(err, loader.ErrGoexit), errors.Is(err, cache.ErrLoadTimeout):
	case backoff && l.failedSince(now-11*o.ErrorBackoff):
	case errors.Is(err, cache.ErrClosed) && q.node.gone:
	case errors.Is(err, cache.ErrOverloaded) && o.MaxConcurrentLoads > 0:
	case errors.Is(err, cache.ErrWaitTimeout) && (l.w.faulty || l.revokedSince(now-o.LoadTimeout-o.Lease)):
	default:
		l.broken("errors", "%v %v: %v", q.node, q.deed, err)
	}
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func isAbsence(err error) bool { return errors.Is(err, cache.ErrNotFound) }
