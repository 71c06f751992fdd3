package cache_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/levee-cache/levee/rebuild"
)

// ledger is the reference's knowledge of one key: what the database has held and when, what has
// been promised, and which loads there were. It tells of each answer, each load and each entry
// whether it was allowed. Instants are counted from the start of the run; the world's mutex
// guards everything.
type ledger struct {
	w        *randomWorld
	key      string
	redisKey string

	version   int                   // what the database holds now
	made      map[int]time.Duration // when a load or a Set last brought a version to a cache
	confirmed []confirmation        // in the order in which they came
	floor     int                   // Redis holds nothing older
	revoked   []*span               // of whatever may have taken a lease from the entry
	queries   []*query              // calls of the loader
}

// confirmation is a Delete or Set that returned without error, or what others did to Redis.
type confirmation struct {
	version int
	node    *randomNode // nil: it was others
	at      time.Duration
}

// span is when a command may have been executed.
type span struct{ from, to time.Duration }

const forever time.Duration = math.MaxInt64

// query is one call of the loader.
type query struct {
	node         *randomNode
	began, ended time.Duration // ended is 0 while it runs
	failed       bool
	leased       bool  // its node held the lease of the entry when it began
	refresh      bool  // its node had a Refresh under way
	lost, remote int64 // the node's counters when it began
}

// end is when q has ended for its callers, or will: at LoadTimeout it is given up.
func (q *query) end() time.Duration {
	deadline := q.began + q.node.w.o.LoadTimeout
	if q.ended > 0 {
		return min(q.ended, deadline)
	}
	return deadline
}

func (q *query) over(now time.Duration) bool { return now >= q.end() }

func (q *query) hasFailed() bool {
	return q.failed || q.end() == q.began+q.node.w.o.LoadTimeout
}

// lostItsLease tells whether q's node has noticed that it lost a lease while q ran, and had a
// reason to.
func (q *query) lostItsLease() bool {
	return q.node.Stats().LeasesLost > q.lost && q.node.troubledSince(q.began)
}

// exists tells whether the row exists in a version.
func exists(version int) bool { return version%4 != 0 }

// write is a write to the database.
func (l *ledger) write() int {
	l.version++
	l.w.note(l.key, "database: version %d", l.version)
	return l.version
}

// brought records that a version was brought to a cache.
func (l *ledger) brought(version int) { l.made[version] = l.w.now() }

// confirm records that nothing older than version may be in Redis any more.
func (l *ledger) confirm(version int, node *randomNode) {
	l.floor = max(l.floor, version)
	l.confirmed = append(l.confirmed, confirmation{version, node, l.w.now()})
	l.inspect()
}

// revokes records that leases may be taken from the entry between now and the call of done.
func (l *ledger) revokes() (done func()) {
	s := &span{l.w.now(), forever}
	l.revoked = append(l.revoked, s)
	return func() { s.to = l.w.now() }
}

func (l *ledger) revokedSince(t time.Duration) bool {
	for _, s := range l.revoked {
		if s.to >= t {
			return true
		}
	}
	return false
}

// versionOf is the version in a value, or -1 for one that the database never held.
func (l *ledger) versionOf(value string) int {
	text, ok := strings.CutPrefix(value, l.key+"@")
	v, err := strconv.Atoi(text)
	if !ok || err != nil || v < 1 || v > l.version || !exists(v) {
		return -1
	}
	return v
}

// absent tells whether "not found" was true of a version not below low, and was brought to a
// cache no longer than life ago.
func (l *ledger) absent(low int, life time.Duration) bool {
	for v := max(low, 1); v <= l.version; v++ {
		if at, ok := l.made[v]; ok && !exists(v) && l.w.now()-at <= life {
			return true
		}
	}
	return false
}

// inspect looks into Redis. P4: no value there is older than the last confirmed invalidation.
// P11: nothing lives for ever.
func (l *ledger) inspect() {
	raw := l.raw()
	if raw == "" {
		return
	}
	if l.w.bubble.Mini().TTL(l.redisKey) <= 0 && l.raw() == raw { // it has not gone meanwhile
		l.broken("P11", "the entry has no lifetime")
	}
	switch kind, payload := kindOf(raw), payloadOf(raw); {
	case kind == rebuild.KindValue && l.versionOf(payload) < l.floor:
		l.broken("P4", "Redis holds %q after version %d was confirmed", payload, l.floor)
	case kind == rebuild.KindNotFound && !l.absent(l.floor, forever):
		l.broken("P4", "Redis holds \"not found\", which was true before version %d was confirmed", l.floor)
	}
}

// begins judges a load that begins. P1: it has the lease, unless its node cannot reach Redis,
// and no other runs beside it that nothing has revoked.
func (l *ledger) begins(q *query) {
	o := l.w.o
	if !q.leased && !l.revokedSince(q.began-o.RedisTimeout) && !q.node.troubledSince(q.began-l.w.lag) {
		l.broken("P1", "%v loads without the lease, though it can reach Redis", q.node)
	}
	for _, other := range l.queries {
		switch {
		case other.over(q.began) || l.revokedSince(other.began-o.RedisTimeout) || other.lostItsLease():
		case !other.leased && other.node.troubledSince(other.began-l.w.lag): // newcomers leave it where changes may go unheard
		case other.node == q.node && !q.refresh, other.leased && q.leased:
			l.broken("P1", "%v loads while the load of %v from %v goes on", q.node, other.node, other.began)
		}
	}
	l.backsOff(q, l.lastFailure(q.began))
}

// backsOff judges a load after one that has failed. P8: it leaves the key alone for the back-off,
// as Redis remembers it, or the node itself where it cannot ask Redis.
func (l *ledger) backsOff(q, failed *query) {
	o := l.w.o
	if failed == nil || q.began >= failed.end()+o.ErrorBackoff*8/10-time.Millisecond || l.revokedSince(failed.began-o.RedisTimeout) {
		return
	}
	told := !failed.node.troubledSince(failed.began) && !q.node.troubledSince(failed.began-l.w.lag)
	own := failed.node == q.node && !q.leased && failed.remote == q.remote
	if told || own {
		l.broken("P8", "%v loads %v after the load of %v failed", q.node, q.began-failed.end(), failed.node)
	}
}

// lastFailure is the load that ended last, if it failed. A node that is gone may have told nobody.
func (l *ledger) lastFailure(now time.Duration) (last *query) {
	for _, q := range l.queries {
		if q.over(now) && (last == nil || q.end() >= last.end()) {
			last = q
		}
	}
	if last == nil || last.node.gone || !last.hasFailed() {
		return nil
	}
	return last
}

func (l *ledger) failedSince(t time.Duration) bool {
	for _, q := range l.queries {
		if q.over(l.w.now()) && q.hasFailed() && q.end() >= t {
			return true
		}
	}
	return false
}

// broken ends the run with what has happened to the key.
func (l *ledger) broken(rule, format string, args ...any) {
	l.w.report(l.key, rule+": "+fmt.Sprintf(format, args...))
}

// payloadOf is what an entry holds, after what it was loaded under.
func payloadOf(raw string) string {
	switch kindOf(raw) {
	case rebuild.KindValue, rebuild.KindNotFound:
		return raw[rebuild.HeaderSize+carriedSize(raw):]
	}
	return raw[rebuild.HeaderSize:]
}

// carriedSize is the length of what says what a value was loaded under: eight digits before the payload's.
func carriedSize(raw string) int {
	end := rebuild.HeaderSize - 8
	n, err := strconv.ParseInt(raw[end-4:end], 16, 32)
	if err != nil {
		return 0
	}
	return int(n)
}
