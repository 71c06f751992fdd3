package rebuild

import (
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// holds are the hold-downs that began on this node, or that it heard of, for what goes into no
// entry. Those of entries are in the entries.
type holds struct{ fading[link.Instant] }

// begin starts one of d at now. A later end stands.
func (h *holds) begin(k Key, now link.Instant, d time.Duration) {
	if d > 0 {
		h.update(k.Text, func(ends link.Instant) link.Instant { return max(ends, now.Add(d)) })
	}
}

// shorten ends the windows of a value of k with its hold-down, if the load began within one.
func (n *Node) shorten(s *Stamp, k Key) {
	if n.policy.HoldDown == 0 {
		return
	}
	if ends := max(n.holds.find(k.Text), n.heldBy(s.marks)); ends > s.Loaded {
		s.Fresh, s.Stale, s.IfError = min(s.Fresh, ends), min(s.Stale, ends), min(s.IfError, ends)
	}
}

// heldBy is the end of the hold-down that a Clear, or the end of a tag, has begun; 0 if there is none.
func (n *Node) heldBy(marks []mark) (ends link.Instant) {
	if n.policy.HoldDown == 0 {
		return 0
	}
	for _, g := range n.generations(marks) {
		if at := link.Instant(g.changed.Load()); at != never {
			ends = max(ends, at.Add(n.policy.HoldDown))
		}
	}
	return ends
}
