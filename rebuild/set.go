package rebuild

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/lock"
)

// Written is what a Set says of its value.
type Written struct {
	TTL  time.Duration // its own fresh time; 0: the policy's
	Row  uint64        // its version in the database; 0: none
	Tags []string
}

// Set stores c as the value of k after a write to the database. It is a delete, and then a
// commit under the lease that the delete left to its caller: a set in one step, delayed in
// the network and repeated by the client, could bring an older value back over a newer one.
// A row version below the entry's changes nothing and is a success.
func (n *Node) Set(ctx context.Context, k Key, c Copy, w Written) error {
	e, storable, err := n.content(content{ttl: w.TTL, row: w.Row, setter: true}, c)
	switch {
	case err != nil:
		return errors.Join(err, n.Delete(ctx, []Key{k}))
	case !storable:
		n.Counts.Unstorable.Add(1)
		return n.Delete(ctx, []Key{k})
	case n.server.link == nil:
		return n.setAlone(k, e, w.Tags)
	}
	e.payload = bytes.Clone(e.payload) // once Set has returned, its caller may change what it gave
	return n.detach(ctx, []Key{k}, func(ctx context.Context) error {
		return n.set(ctx, k, e, w.Tags)
	})
}

func (n *Node) setAlone(k Key, e content, tags []string) error {
	if n.life.ended() {
		return ErrClosed
	}
	c, err := n.values.Decode(k, e.codec, string(e.payload), Stamp{})
	if err != nil {
		return errors.Join(err, n.Delete(context.Background(), []Key{k}))
	}
	e.marks = n.marksOf(tags)
	set := n.running.replace(k.Text, func() bool { return n.newerRow(k, e.row) }, func() {
		if e.row == 0 {
			e.row = n.rowOf(k)
		}
		n.holds.clear(k.Text)
		n.values.Keep(k, n.values.Stamped(k, c, n.ownStamp(k, e, n.clock.Now(), 0)))
	})
	if set {
		n.flights.forget(k)
		n.failed.clear(k.Text)
	}
	return nil
}

// keepContent keeps a decoded copy, never the caller's own value, unless the namespace has ended since it was
// begun.
func (n *Node) keepContent(k Key, e content, t *ticket, s Stamp) error {
	c, err := n.values.Decode(k, e.codec, string(e.payload), s)
	if err == nil {
		n.running.keep(t, func() {
			switch {
			case n.space.hard.Load() != e.space:
				return
			case t.doubted:
				c = n.doubted(k, c)
			}
			n.values.Keep(k, c)
		})
	}
	return err
}

func (n *Node) set(ctx context.Context, k Key, e content, tags []string) error {
	b, turn := n.budget(), n.retries.begin()
	e.marks = n.marksOf(tags)
	unknown := n.learn(ctx, &b, n.generations(e.marks)...)
	e.space, e.marks = n.space.hard.Load(), n.marksOf(tags)
	a := &attempt{token: lock.NewToken()}
	r, err := n.seize(ctx, &b, k, a, e.row)
	n.forget(k)
	gone := unknown != nil || a.twice() // is all that it can be: between two attempts another may have written
	if !link.NotSent(err) && (err != nil || gone) {
		n.giveBack(ctx, k, a.token, 0, true)
	}
	switch {
	case err != nil:
		return n.confirm(ctx, turn, scripts.remove, []Key{k}, []error{err})
	case r.Status == statusOlder:
		return nil
	case gone, r.Status != statusSeized: // it came too late, and only deleted
		return n.confirm(ctx, turn, nil, []Key{k}, []error{n.tell(ctx, &b, k)})
	}
	t := n.running.begin(k.Text, true)
	defer n.running.end(t)
	start := Micros(r.int(3))
	d := n.draft(k, e, a.token, start, 0)
	r, told, err := n.tellAndRun(ctx, &b, k, scripts.commit, d.args(a.token, start, n.policy)...)
	told = n.confirm(ctx, turn, nil, []Key{k}, []error{told})
	switch {
	case err != nil:
		n.giveBack(ctx, k, a.token, 0, true)
	case r.Status == statusCommitted:
		n.Counts.Commits.Add(1)
		n.holds.clear(k.Text)
		s := n.stampOf(r.Entry.Header, r.Now, r.Sent)
		n.under(&s, e.space, e.marks)
		return errors.Join(told, n.keepContent(k, e, t, s))
	default:
		n.Counts.Refused.Add(1) // somebody was later: a success
	}
	return told
}

// seize is the first step. Found late, it is repeated once with the corrected clock: late it
// only deletes.
func (n *Node) seize(ctx context.Context, b *link.Budget, k Key, a *attempt, row uint64) (reply, error) {
	for try := 0; ; try++ {
		notAfter, err := n.server.notAfter(ctx, b, k, link.Urgent)
		if err != nil {
			return reply{}, err
		}
		r, err := n.server.run(ctx, b, link.Urgent, k, scripts.seize,
			a, millis(2*n.policy.RedisTimeout), rowText(row), millis(n.policy.HoldDown), int64(notAfter))
		if err != nil || r.Status != statusLate || try > 0 {
			return r, err
		}
	}
}
