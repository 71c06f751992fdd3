package rebuild

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
)

// Delete removes the entries of ks, and with them any lease: the next Get loads. What loads
// and reads now under way will bring is kept nowhere. Without an error no later Get of this
// node returns an older value.
func (n *Node) Delete(ctx context.Context, ks []Key) error {
	return n.invalidate(ctx, ks, scripts.remove)
}

// Expire ends the freshness of ks: the next Get serves the stale value, where its windows
// allow, and refreshes it. A load now under way is kept nowhere.
func (n *Node) Expire(ctx context.Context, ks []Key) error {
	return n.invalidate(ctx, ks, scripts.expire)
}

func (n *Node) invalidate(ctx context.Context, ks []Key, script *redis.Script) error {
	if n.server.link == nil {
		if n.life.ended() {
			return ErrClosed
		}
		if script == scripts.expire {
			n.expireAlone(ks)
		} else {
			n.forget(ks...)
		}
		return nil
	}
	return n.detach(ctx, ks, func(ctx context.Context) error {
		var faults []error
		for batch := range slices.Chunk(ks, invalidateBatch) {
			for i, r := range n.sendAll(ctx, batch, script) {
				if r.Err != nil {
					faults = append(faults, n.unconfirmedInvalidation(batch[i], named(r.Err)))
				}
			}
		}
		return errors.Join(faults...)
	})
}

// invalidateBatch is how many keys go into one pipeline; each has a budget of its own.
const invalidateBatch = 256

// sendAll runs the script for every key in one pipeline. The keys are forgotten when it has
// answered, be it with an error, and be it after the budget: only then can nothing older be
// read from Redis any more.
func (n *Node) sendAll(ctx context.Context, ks []Key, script *redis.Script) []link.Reply {
	calls := make([]link.ScriptCall, len(ks))
	for i, k := range ks {
		calls[i] = n.server.call(k, script, 0)
	}
	b := n.budget()
	replies, err := link.Call(ctx, n.server.link, &b, link.Urgent, func(ctx context.Context) ([]link.Reply, error) {
		replies := link.RunAll(ctx, n.server.link.Client, calls)
		n.forget(ks...)
		return replies, nil
	})
	n.forget(ks...)
	if err != nil {
		replies = make([]link.Reply, len(ks))
		for i := range replies {
			replies[i].Err = err
		}
	}
	return replies
}

// detach runs f to its end, whatever becomes of its caller: an invalidation that was begun is
// finished. A caller that leaves before is told that nothing is confirmed.
func (n *Node) detach(ctx context.Context, ks []Key, f func(context.Context) error) error {
	ended := make(chan error, 1)
	detached := context.WithoutCancel(ctx)
	if !n.life.run(func() { ended <- f(detached) }) {
		return ErrClosed
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	n.forget(ks...)
	faults := make([]error, len(ks))
	for i, k := range ks {
		faults[i] = n.unconfirmedInvalidation(k, ctx.Err())
	}
	return errors.Join(faults...)
}

// forget takes from memory what is known of ks, and makes void what is under way for them.
func (n *Node) forget(ks ...Key) {
	for _, k := range ks {
		n.running.forget(k.Text, func() { n.values.Drop(k) })
		n.flights.forget(k)
		n.failed.clear(k.Text)
	}
}

func (n *Node) unconfirmedInvalidation(k Key, cause error) error {
	p := n.policy
	bound := p.TTL + p.IfError
	return &InvalidationError{Key: k.Text, Bound: bound.Round(time.Millisecond), cause: cause}
}

// expireAlone is what the script does, for a node without Redis: what may be served stale is so from
// now on, and a failure is not forgotten.
func (n *Node) expireAlone(ks []Key) {
	for _, k := range ks {
		n.running.forget(k.Text, func() {
			c := n.values.Lookup(k)
			n.values.Drop(k)
			if c = n.expired(k, c); c != nil {
				n.values.Keep(k, c)
			}
		})
		n.flights.forget(k)
	}
}

// expired is c with the end of its freshness now, and the windows after it as long as they were;
// nil if that leaves nothing to serve.
func (n *Node) expired(k Key, c Copy) Copy {
	if c == nil || c.Meta().Kind != KindValue {
		return nil
	}
	s, now := c.Meta().Stamp, n.clock.Now()
	earlier := max(s.Fresh-now, 0)
	s.Fresh, s.Stale, s.IfError = s.Fresh-earlier, s.Stale-earlier, s.IfError-earlier
	if s.IfError <= now {
		return nil
	}
	s.prepare(s.Cost, n.policy.EarlyRefresh)
	s.Believed, s.Verify, s.Due = max(s.Fresh, s.Stale), s.Fresh, s.Early
	return n.values.Stamped(k, c, s)
}
