package rebuild

import (
	"cmp"
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
	turn := n.retries.begin()
	return n.detach(ctx, ks, func(ctx context.Context) error {
		var faults []error
		for batch := range slices.Chunk(ks, manyKeys) {
			b := n.budget()
			failed := n.invalidateBatch(ctx, &b, batch, script)
			faults = append(faults, n.confirm(ctx, turn, script, batch, failed))
		}
		return errors.Join(faults...)
	})
}

// manyKeys is how many keys go into one pipeline, under one budget.
const manyKeys = 256

// invalidateBatch does the three steps of an invalidation: the script for every key, or none if
// the entries are done already; forgetting; and the message, of the keys that Redis confirmed.
func (n *Node) invalidateBatch(ctx context.Context, b *link.Budget, ks []Key, script *redis.Script) (failed []error) {
	failed = make([]error, len(ks))
	if script != nil {
		for i, r := range n.sendAll(ctx, b, ks, script) {
			failed[i] = named(r.Err)
		}
	}
	var confirmed []Key
	for i, k := range ks {
		if failed[i] == nil {
			confirmed = append(confirmed, k)
		}
	}
	if err := n.tell(ctx, b, confirmed...); err != nil {
		for i := range failed {
			failed[i] = cmp.Or(failed[i], err)
		}
	}
	return failed
}

// sendAll runs the script for every key in one pipeline. The keys are forgotten when it has
// answered, be it with an error, and be it after the budget: only then can nothing older be
// read from Redis any more.
func (n *Node) sendAll(ctx context.Context, b *link.Budget, ks []Key, script *redis.Script) []link.Reply {
	calls := make([]link.ScriptCall, len(ks))
	for i, k := range ks {
		calls[i] = n.server.call(k, script, millis(n.policy.HoldDown))
	}
	replies, err := link.Call(ctx, n.server.link, b, link.Urgent, func(ctx context.Context) ([]link.Reply, error) {
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

// confirm makes of what failed an error for the caller, and has it tried again.
func (n *Node) confirm(ctx context.Context, turn uint64, script *redis.Script, ks []Key, failed []error) error {
	var faults []error
	var done, undone, untold []Key
	for i, k := range ks {
		switch err := failed[i]; {
		case err == nil:
			done = append(done, k)
			continue
		case errors.Is(err, errForeign): // will not pass by itself
		case errors.Is(err, errUntold):
			untold = append(untold, k)
		default:
			undone = append(undone, k)
		}
		faults = append(faults, n.unconfirmedInvalidation(k, failed[i]))
	}
	n.retries.done(turn, done...)
	n.retryLater(ctx, turn, script, undone...)
	n.retryLater(ctx, turn, nil, untold...)
	return errors.Join(faults...)
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
		n.running.forget(k.Text, func() {
			n.holds.begin(k, n.clock.Now(), n.policy.HoldDown)
			n.values.Drop(k)
		})
		n.flights.forget(k)
		n.failed.clear(k.Text)
	}
}

func (n *Node) unconfirmedInvalidation(k Key, cause error) *InvalidationError {
	bound := n.longestLife()
	if errors.Is(cause, errUntold) { // only copies are left, which are verified in time
		bound = n.policy.LocalTTL
	}
	return &InvalidationError{Key: k.Text, Bound: bound.Round(time.Millisecond), cause: cause}
}

// expireAlone is what the script does, for a node without Redis: what may be served stale is so from
// now on, and a failure is not forgotten.
func (n *Node) expireAlone(ks []Key) {
	for _, k := range ks {
		n.running.forget(k.Text, func() {
			n.holds.begin(k, n.clock.Now(), n.policy.HoldDown)
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
	s.alone(s.Since)
	return n.values.Stamped(k, c, s)
}
