package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
)

// draft is an entry on its way to Redis.
type draft struct {
	content
	fresh, stale, ifError time.Duration
	text                  []byte
	holdDown              Millis // 0: none
}

// content is a value as it will stand in an entry.
type content struct {
	kind    Kind
	codec   byte
	payload []byte
	keep    bool          // the payload that is there, instead
	ttl     time.Duration // 0: the policy's
	row     uint64
	setter  bool  // by Set, not by a load
	anew    bool  // by a load, for a value that its generations have ended
	space   int64 // the generations that it was loaded under
	marks   []mark
	held    time.Duration // from the load's start to the end of a hold-down that its generations tell of; 0: none
}

// content encodes c, or "not found" for nil. ok is false for what may not be stored.
func (n *Node) content(e content, c Copy) (content, bool, error) {
	e.kind = KindValue
	if c == nil {
		e.kind = KindNotFound
		return e, n.policy.NegativeTTL > 0 || e.ttl > 0, nil
	}
	var err error
	e.codec, e.payload, err = n.values.Encode(c)
	return e, err == nil && len(e.payload) <= n.policy.MaxValueBytes, err
}

// outcome is the content of what a load brought; c is its value.
func (n *Node) outcome(l *load, o Outcome, marks []mark) (c Copy, e content, ok bool, err error) {
	c, e = o.Copy, content{kind: KindValue, ttl: o.TTL, row: o.Row, anew: l.anew, space: l.space, marks: marks}
	e.held = max(time.Duration(n.heldBy(marks)-l.began), 0)
	switch {
	case o.NotModified && l.inEntry(e):
		c, e.keep, ok = l.base, true, true
	case o.NotModified:
		c = n.values.Stamped(l.key, l.base, l.base.Meta().Stamp) // others are reading the base
		e, ok, err = n.content(e, c)
	case o.NoStore || o.TTL < 0: // is not encoded for nothing
		if c == nil {
			e.kind = KindNotFound
		}
	default:
		e, ok, err = n.content(e, c)
	}
	if e.row == 0 && l.base != nil && e.kind == KindValue { // as the script does
		e.row = l.base.Meta().Row
	}
	return c, e, ok && !o.NoStore && o.TTL >= 0, err
}

// inEntry tells whether what e says of the base stands in the entry already.
func (l *load) inEntry(e content) bool {
	base := l.base.Meta()
	return base.Identity != Identity{} && base.space == e.space && slices.Equal(base.marks, e.marks)
}

// draft makes an entry for the holder of the lease (writer, start).
func (n *Node) draft(k Key, e content, writer string, start Micros, cost time.Duration) draft {
	carried := carriedText(e.space, e.marks)
	h := Header{Kind: e.kind, Codec: e.codec, Identity: Identity{Version: start, Writer: writer},
		Row: e.row, Hash: k.Hash, Cost: cost, Variable: len(carried), Body: len(e.payload)}
	d := draft{content: e, text: slices.Concat(h.format(), carried, e.payload)}
	if e.keep {
		d.text = h.format()
	}
	d.fresh, d.stale, d.ifError = n.policy.windows(e.kind, e.ttl)
	if e.held > 0 { // the lease's start is the load's, on the server's clock
		d.holdDown = Millis((int64(start) + e.held.Microseconds()) / 1000)
	}
	return d
}

// args are the arguments of the commit script.
func (d draft) args(token string, start Micros, p Policy) []any {
	return slices.Concat([]any{token, int64(start), millis(d.fresh), millis(d.stale), millis(d.ifError),
		rowText(d.row), d.by(), d.text, boolText(d.keep)}, p.backoff(), []any{int64(d.holdDown)})
}

// by is who stores it, as the script knows them.
func (e content) by() string {
	switch {
	case e.setter:
		return "set"
	case e.anew:
		return "anew"
	}
	return "load"
}

func rowText(row uint64) string { return fmt.Sprintf("%016x", row) }

func boolText(b bool) string { return string(flag(b)) }

// store puts what a load brought into Redis, as far as it may be, and keeps it as far as it is
// known to be current.
func (n *Node) store(ctx context.Context, l *load, o Outcome) {
	bad := CheckTags(o.Tags)
	if bad != nil {
		o.Tags, o.NoStore = nil, true
	}
	marks, standing := n.marks(ctx, l, o)
	l.ended = !standing
	c, e, storable, err := n.outcome(l, o, marks)
	err = cmp.Or(err, bad)
	if l.lease != nil || !n.newerRow(l.key, e.row) {
		n.failed.clear(l.key.Text)
	}
	cost := l.cost(n.clock.Now())
	l.copy = n.values.Stamped(l.key, c, n.ownStamp(l.key, e, l.began, cost))
	switch {
	case l.private:
	case !standing:
		n.Counts.Refused.Add(1)
		n.giveUp(ctx, l)
	case !storable:
		n.running.keep(l.ticket, func() { n.values.Drop(l.key) })
		n.unstorable(ctx, l, err)
	case l.lease != nil:
		n.commit(ctx, l, n.draft(l.key, e, l.lease.Token, Micros(l.lease.Start), cost))
	case n.newerRow(l.key, e.row):
		n.older(l, true)
	default:
		n.keepOwn(l, l.copy)
	}
}

// newerRow tells whether this node holds a newer row than the one of this version.
func (n *Node) newerRow(k Key, row uint64) bool { return row > 0 && n.rowOf(k) > row }

// rowOf is the row version of what this node holds.
func (n *Node) rowOf(k Key) uint64 {
	c := n.values.Lookup(k)
	if c == nil || c.Meta().At(n.clock.Now()) == Gone {
		return 0
	}
	return c.Meta().Row
}

// errOlderRow is why a value is not stored, and its key left alone for a moment: where it came from will
// not have caught up by the next read.
var errOlderRow = errors.New("levee: the row that was loaded is older than the one that is stored")

func (n *Node) older(l *load, leave bool) {
	n.Counts.Refused.Add(1)
	l.outdated = true
	if leave && n.running.valid(l.ticket) {
		n.failed.record(l.key.Text, errOlderRow)
	}
}

// cost is what loads of this key take, by this one, which ends now, and the ones before.
func (l *load) cost(now link.Instant) time.Duration {
	last := max(time.Duration(now-l.began), time.Microsecond)
	if l.base == nil {
		return last
	}
	return smoothed(l.base.Meta().Cost, last)
}

// unstorable is returned to those who waited, and Redis tells the other nodes not to queue.
func (n *Node) unstorable(ctx context.Context, l *load, err error) {
	if err != nil {
		n.policy.Logger.Warn("levee: a value cannot be stored", "key", l.key.Redis, "error", err)
	}
	n.Counts.Unstorable.Add(1)
	if l.lease != nil {
		n.conclude(ctx, l, scripts.pass, millis(passFor))
	}
}

// commit stores d under the lease. Refused, it is kept nowhere; of unknown fate, it is believed
// for a moment and the commit is finished behind the answer.
func (n *Node) commit(ctx context.Context, l *load, d draft) {
	args := d.args(l.lease.Token, Micros(l.lease.Start), n.policy)
	l.lease.End() // no renewal is to find it gone by our own doing
	r, err := n.server.run(ctx, &l.budget, link.Urgent, l.key, scripts.commit, args...)
	switch {
	case err != nil && refusedByServer(err):
		n.policy.Logger.Warn("levee: Redis refused to store a value", "key", l.key.Redis, "error", err)
		n.keepOwn(l, l.copy)
		n.unstorable(ctx, l, nil)
	case err != nil:
		n.unconfirmed(ctx, l, args)
	case r.Status == statusCommitted:
		n.Counts.Commits.Add(1)
		n.committed(l, r)
	case r.Status == statusOlder:
		n.older(l, r.int(3) == 1)
	default:
		n.Counts.Refused.Add(1)
		n.giveBack(ctx, l.key, l.lease.Token, 0, true) // a late first acquire may have re-created it
	}
	n.woke(r)
}

// committed keeps the value with the windows that Redis gave it. It is believed from the
// sending of the commit: had anything revoked it before, the lease would have been gone.
func (n *Node) committed(l *load, r reply) {
	s := n.stampOf(r.Entry.Header, r.Now, r.Sent)
	n.under(&s, l.copy.Meta().space, l.copy.Meta().marks)
	l.copy = n.values.Stamped(l.key, l.copy, s)
	n.keepOwn(l, l.copy)
}

func (n *Node) keepOwn(l *load, c Copy) {
	n.running.keep(l.ticket, func() {
		if l.ticket.doubted {
			c = n.doubted(l.key, c)
		}
		n.values.Keep(l.key, c)
	})
}

// unconfirmed keeps the value for a moment, and asks again behind the answer: a repeated
// commit changes nothing.
func (n *Node) unconfirmed(ctx context.Context, l *load, args []any) {
	n.Counts.Unconfirmed.Add(1)
	s := l.copy.Meta().Stamp
	s.believe(l.began, min(unsureFor, n.policy.LocalTTL))
	l.copy = n.values.Stamped(l.key, l.copy, s)
	n.keepOwn(l, l.copy)
	n.insist(ctx, l.key, scripts.commit, args...)
}

// conclude ends the lease by a script other than commit.
func (n *Node) conclude(ctx context.Context, l *load, script *redis.Script, args ...any) {
	args = append([]any{l.lease.Token, l.lease.Start}, args...)
	l.lease.End()
	r, err := n.server.run(ctx, &l.budget, link.Urgent, l.key, script, args...)
	switch {
	case err != nil:
		n.insist(ctx, l.key, script, args...)
	case r.Status == statusRefused:
		n.giveBack(ctx, l.key, l.lease.Token, 0, true)
	}
	n.woke(r)
}

// refusedByServer tells an answer of the server (out of memory, too long a string, read-only)
// from silence.
func refusedByServer(err error) bool { return !errors.Is(err, link.ErrUnavailable) }

// insistTimes is how often a command that ends a lease is tried behind the answer. The lease
// ends by itself after that.
const insistTimes = 3

// insist repeats a script until it is answered, behind the answer.
func (n *Node) insist(ctx context.Context, k Key, script *redis.Script, args ...any) {
	n.life.run(func() {
		for range insistTimes {
			b := n.budget()
			if _, err := n.server.run(ctx, &b, link.Urgent, k, script, args...); err == nil || n.life.ended() {
				return
			}
			n.sleep(firstPause)
		}
	})
}

// failure is the arguments of the fail script after the lease.
func (n *Node) failure(err error) []any {
	return append(n.policy.backoff(), n.policy.message(err))
}

// backoff is what the scripts need to know of how long to leave a key alone.
func (p Policy) backoff() []any {
	return []any{millis(p.Backoff), millis(backoffGrowth * p.Backoff), 1000 - int(backoffJitter*1000*rand.Float64())}
}

// woke counts wake-ups that Redis did not let us publish: waiters then find out by polling.
func (n *Node) woke(r reply) {
	if r.int(2) < 0 && n.Counts.WakeupRefused.Add(1) == 1 {
		n.policy.Logger.Warn("levee: no right to publish on the wake-up channels; waiting nodes poll")
	}
}
