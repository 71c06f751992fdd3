package lock

import "context"

// again returns another lease of the lock that ctx is under already, if that is what s allows and it lives; else nil.
func (k *Locker) again(ctx context.Context, name string, s *settings) *Lease {
	if !s.reentrant {
		return nil
	}
	h, ok := ctx.Value(holding{}).(*hold)
	for ; ok; h, ok = h.outer() {
		if h.locker == k && h.name == name && h.join() {
			return h.lease()
		}
	}
	return nil
}

// outer is the hold under which h was taken.
func (h *hold) outer() (*hold, bool) {
	o, ok := h.parent.Value(holding{}).(*hold)
	return o, ok
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
