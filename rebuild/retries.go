package rebuild

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
)

// retries are the invalidations that Redis did not confirm. They are tried again behind the answer,
// the newest of each key, until they are confirmed or too old.
type retries struct {
	mu      sync.Mutex // guards what follows
	turn    uint64     // of the last invalidation that has begun
	waiting map[string]*retry
	ends    map[end]*retry // changes of generations
	running bool
}

// retry is one invalidation to be tried again.
type retry struct {
	key    Key
	script *redis.Script // nil: the entry is done, and only the message is missing
	until  link.Instant
	turn   uint64 // of the invalidation that failed
}

// begin numbers an invalidation, before anything of it is sent: one that ends later may be the older one.
func (r *retries) begin() (turn uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn++
	return r.turn
}

// mostRetries bounds the keys that wait; beyond it nothing is retried.
const mostRetries = 1 << 14

// retryLater has what failed tried again, if the policy says so. A Set has become a Delete by then.
func (n *Node) retryLater(ctx context.Context, turn uint64, script *redis.Script, ks ...Key) {
	d := n.policy.RetryDeletes
	if d == 0 || len(ks) == 0 {
		return
	}
	r := &n.retries
	r.mu.Lock()
	defer r.mu.Unlock()
	until := n.clock.Now().Add(d)
	for _, k := range ks {
		switch old := r.waiting[k.Text]; {
		case old == nil && len(r.waiting) >= mostRetries:
			n.lost(k.Redis, "too many wait already")
		case old != nil && old.turn > turn:
		case old != nil && old.script != nil && script == nil: // the entry is still to be done
			old.until, old.turn = until, turn
		default:
			if r.waiting == nil {
				r.waiting = map[string]*retry{}
			}
			r.waiting[k.Text] = &retry{key: k, script: script, until: until, turn: turn}
		}
	}
	n.startRetryingLocked(ctx)
}

// retryEnd does so for a change of a generation.
func (n *Node) retryEnd(ctx context.Context, turn uint64, e end) {
	if n.policy.RetryDeletes == 0 {
		return
	}
	r := &n.retries
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ends == nil {
		r.ends = map[end]*retry{}
	}
	switch old := r.ends[e]; {
	case old == nil && len(r.ends) >= mostRetries:
		n.lost(n.generationKey(e.tag), "too many wait already")
	case old == nil || old.turn < turn:
		r.ends[e] = &retry{until: n.clock.Now().Add(n.policy.RetryDeletes), turn: turn}
	}
	n.startRetryingLocked(ctx)
}

func (n *Node) startRetryingLocked(ctx context.Context) {
	if !n.retries.running {
		n.policy.Logger.Warn("levee: Redis has not confirmed an invalidation; it will be tried again", "for", n.policy.RetryDeletes)
		n.retries.running = n.life.run(func() { n.retry(context.WithoutCancel(ctx)) })
	}
}

// lost gives up on an invalidation.
func (n *Node) lost(key string, why string) {
	n.Counts.RetriesLost.Add(1)
	n.policy.Logger.Error("levee: an invalidation is given up: others may serve the old value until its windows end", "key", key, "why", why)
}

// done takes keys that have been invalidated from those that wait, where what waits is not newer.
func (r *retries) done(turn uint64, ks ...Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, k := range ks {
		if old := r.waiting[k.Text]; old != nil && old.turn <= turn {
			delete(r.waiting, k.Text)
		}
	}
}

// Retries is how many invalidations wait to be tried again.
func (n *Node) Retries() int {
	n.retries.mu.Lock()
	defer n.retries.mu.Unlock()
	return len(n.retries.waiting) + len(n.retries.ends)
}

// retry goes round until nothing waits.
func (n *Node) retry(ctx context.Context) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		n.sleep(spread(pause, 0.5))
		if n.life.ended() || !n.retryRound(ctx) {
			return
		}
	}
}

// retryRound tries everything that waits once. It tells whether something still does.
func (n *Node) retryRound(ctx context.Context) bool {
	for _, batch := range n.dueBatches(n.clock.Now()) {
		if !n.retryBatch(ctx, batch) {
			break // Redis is away still
		}
	}
	for e, r := range n.dueEnds(n.clock.Now()) {
		b := n.budget()
		if n.end(ctx, &b, e) == nil {
			n.retries.ended(e, r.turn)
			n.Counts.Retried.Add(1)
		}
	}
	r := &n.retries
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running = len(r.waiting)+len(r.ends) > 0; !r.running {
		n.policy.Logger.Info("levee: no invalidation waits to be confirmed any more")
	}
	return r.running
}

// dueBatches are what waits, by script; what is too old is lost.
func (n *Node) dueBatches(now link.Instant) (all [][]*retry) {
	r := &n.retries
	r.mu.Lock()
	defer r.mu.Unlock()
	open := map[*redis.Script]int{}
	for text, one := range r.waiting {
		if now >= one.until {
			delete(r.waiting, text)
			n.lost(one.key.Redis, "RetryDeletes is over")
			continue
		}
		i, ok := open[one.script]
		if !ok || len(all[i]) == manyKeys {
			i = len(all)
			all = append(all, nil)
			open[one.script] = i
		}
		all[i] = append(all[i], one)
	}
	return all
}

// dueEnds are the changes of generations that wait; what is too old is lost.
func (n *Node) dueEnds(now link.Instant) map[end]*retry {
	r := &n.retries
	r.mu.Lock()
	defer r.mu.Unlock()
	for e, one := range r.ends {
		if now >= one.until {
			delete(r.ends, e)
			n.lost(n.generationKey(e.tag), "RetryDeletes is over")
		}
	}
	return maps.Clone(r.ends)
}

func (r *retries) ended(e end, turn uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.ends[e]; old != nil && old.turn <= turn {
		delete(r.ends, e)
	}
}

// retryBatch tries one batch, and tells whether Redis answered.
func (n *Node) retryBatch(ctx context.Context, batch []*retry) bool {
	ks := make([]Key, len(batch))
	for i, one := range batch {
		ks[i] = one.key
	}
	b := n.budget()
	failed := n.invalidateBatch(ctx, &b, ks, batch[0].script)
	r := &n.retries
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, one := range batch {
		switch {
		case r.waiting[one.key.Text] != one: // somebody else has done it, or a newer one waits
		case failed[i] == nil:
			delete(r.waiting, one.key.Text)
			n.Counts.Retried.Add(1)
		case errors.Is(failed[i], errUntold):
			one.script = nil
		}
	}
	return failed[0] == nil || !link.NotSent(failed[0])
}

// abandonRetries says what is lost when the node closes.
func (n *Node) abandonRetries() {
	r := &n.retries
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.waiting {
		n.lost(one.key.Redis, "the cache is closed")
	}
	for e := range r.ends {
		n.lost(n.generationKey(e.tag), "the cache is closed")
	}
	r.waiting, r.ends = nil, nil
}
