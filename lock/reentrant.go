package lock

import (
	"context"
	"iter"
)

// again returns another lease of the lock that ctx is under already, if that is what s allows and it lives; else nil.
func (k *Locker) again(ctx context.Context, name string, s *settings) *Lease {
	if !s.reentrant {
		return nil
	}
	for h := range holdsOf(ctx) {
		if h.locker == k && h.name == name && h.join() {
			return h.lease()
		}
	}
	return nil
}

// holdsOf are the holds that ctx is under, the innermost first.
func holdsOf(ctx context.Context) iter.Seq[*hold] {
	return func(yield func(*hold) bool) {
		for {
			h, ok := ctx.Value(holding{}).(*hold)
			if !ok || !yield(h) {
				return
			}
			ctx = h.parent
		}
	}
}

// join counts one more lease; false if the hold has ended.
func (h *hold) join() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leases == 0 || h.ctx.Err() != nil {
		return false
	}
	h.leases++
	return true
}
