package rebuild

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
)

// draft is an entry on its way to Redis.
type draft struct {
	fresh, stale, ifError time.Duration
	row                   uint64
	setter                bool // by Set, not by a load
	text                  []byte
}

// content is a value as it will stand in an entry.
type content struct {
	kind    Kind
	codec   byte
	payload []byte
}

// content encodes c, or "not found" for nil. ok is false for what may not be stored.
func (n *Node) content(c Copy) (e content, ok bool, err error) {
	if c == nil {
		return content{kind: KindNotFound}, n.policy.NegativeTTL > 0, nil
	}
	e.kind = KindValue
	e.codec, e.payload, err = n.values.Encode(c)
	return e, err == nil && len(e.payload) <= n.policy.MaxValueBytes, err
}

// draft makes an entry for the holder of the lease (writer, start).
func (n *Node) draft(k Key, e content, writer string, start Micros, row uint64, cost time.Duration) (d draft) {
	h := Header{Kind: e.kind, Codec: e.codec, Identity: Identity{Version: start, Writer: writer},
		Row: row, Hash: k.Hash, Cost: cost, Body: len(e.payload)}
	d.row = row
	d.fresh, d.stale, d.ifError = n.policy.windows(e.kind)
	d.text = append(h.format(), e.payload...)
	return d
}

// args are the arguments of the commit script.
func (d draft) args(token string, start Micros) []any {
	return []any{token, int64(start), millis(d.fresh), millis(d.stale), millis(d.ifError),
		rowText(d.row), boolText(d.setter), d.text}
}

func rowText(row uint64) string { return fmt.Sprintf("%016x", row) }

func boolText(b bool) string { return string(flag(b)) }

// store puts what a load brought into Redis, as far as it may be, and keeps it as far as it is
// known to be current.
func (n *Node) store(ctx context.Context, l *load, c Copy) {
	n.failed.clear(l.key.Text)
	e, storable, err := n.content(c)
	l.copy = n.values.Stamped(l.key, c, n.ownStamp(e.kind, l.began))
	switch {
	case !storable:
		n.unstorable(ctx, l, err)
	case l.lease != nil:
		cost := time.Duration(n.clock.Now() - l.began)
		n.commit(ctx, l, n.draft(l.key, e, l.lease.Token, Micros(l.lease.Start), 0, cost))
	default:
		n.keepOwn(l, l.copy)
	}
}

// unstorable is returned to those who waited, and Redis tells the other nodes not to queue.
func (n *Node) unstorable(ctx context.Context, l *load, err error) {
	if err != nil {
		n.policy.Logger.Warn("levee: a value cannot be encoded and is not stored", "key", l.key.Redis, "error", err)
	}
	n.Counts.Unstorable.Add(1)
	if l.lease != nil {
		n.conclude(ctx, l, scripts.pass, millis(passFor))
	}
}

// commit stores d under the lease. Refused, it is kept nowhere; of unknown fate, it is believed
// for a moment and the commit is finished behind the answer.
func (n *Node) commit(ctx context.Context, l *load, d draft) {
	args := d.args(l.lease.Token, Micros(l.lease.Start))
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
	default:
		n.Counts.Refused.Add(1)
		n.giveBack(ctx, l.key, l.lease.Token, 0, true) // a late first acquire may have re-created it
	}
	n.woke(r)
}

// committed keeps the value with the windows that Redis gave it. It is believed from the
// sending of the commit: had anything revoked it before, the lease would have been gone.
func (n *Node) committed(l *load, r reply) {
	l.copy = n.values.Stamped(l.key, l.copy, n.stampOf(r.Entry.Header, r.Now, r.Sent))
	n.keepOwn(l, l.copy)
}

func (n *Node) keepOwn(l *load, c Copy) {
	n.running.keep(l.ticket, func() { n.values.Keep(l.key, c) })
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
	p := n.policy
	jitter := 1000 - int(backoffJitter*1000*rand.Float64())
	return []any{millis(p.Backoff), millis(backoffGrowth * p.Backoff), jitter, p.message(err)}
}

// woke counts wake-ups that Redis did not let us publish: waiters then find out by polling.
func (n *Node) woke(r reply) {
	if r.int(2) < 0 && n.Counts.WakeupRefused.Add(1) == 1 {
		n.policy.Logger.Warn("levee: no right to publish on the wake-up channels; waiting nodes poll")
	}
}
