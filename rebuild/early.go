package rebuild

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// earlyShare is the last part of its fresh time in which a value may be refreshed early.
const earlyShare = 5

// prepare sets from when on and how eagerly the copy is refreshed before it expires: beta times
// the cost of a load is the unit of the lead.
func (s *Stamp) prepare(cost time.Duration, beta float64) {
	s.Cost, s.Lead, s.Early = cost, time.Duration(beta*float64(cost)), s.Fresh
	if s.Kind == KindValue && s.Lead > 0 {
		s.Early = s.Fresh - max(s.Fresh-s.Loaded.Add(cost), 0)/earlyShare
	}
}

// early is XFetch: a reader at i refreshes if i - lead·ln(r) has reached the end of freshness, r
// drawn from (0, 1]. The sooner the end, the likelier; with many readers one of them does it
// about lead·ln(reads per lead) before, with few it happens close to the end or not at all.
//
// A. Vattani, F. Chierichetti, K. Lowenstein: Optimal Probabilistic Cache Stampede Prevention,
// PVLDB 8(8), 2015.
func (s *Stamp) early(i link.Instant, r float64) bool {
	return i >= s.Early && float64(i)-float64(s.Lead)*math.Log(r) >= float64(s.Fresh)
}

// Calls draws whether a reader at i should have the copy seen to (see Tend).
func (n *Node) Calls(m *Meta, i link.Instant) bool {
	return i >= m.Fresh || !n.Sound(m, i) || m.early(i, 1-rand.Float64())
}

// smoothed is what a load costs, by the last one and those before it: one slow query must not
// make a value look dear for the whole of its next life.
func smoothed(before, last time.Duration) time.Duration {
	if before == 0 {
		return last
	}
	return before + (last-before)/4
}

// refreshEarly asks for the lease of a value that is still fresh, unless somebody has just refreshed
// it. It tries once and never waits.
func (f *flight) refreshEarly(m *Meta) {
	n := f.n
	slot, ok := func() {}, false
	if n.running.join(f.key.Text) == nil {
		slot, ok = n.spare(f.key)
	}
	if !ok {
		m.restHeld(n.clock.Now())
		return
	}
	f.bar = m.Version + 1
	s, err := f.ask(Try)
	if s.lease == nil {
		slot()
	}
	s.slot = slot
	switch {
	case err != nil: // the value is good still
		n.noteRedis(f.key, err)
		m.restHeld(n.clock.Now())
	case s.lease == nil && s.view.State == Gone && s.view.Backoff:
		m.restFor(n.clock.Now(), s.backoff())
	case s.lease == nil && s.view.State == Gone && s.view.Held:
		m.restHeld(n.clock.Now())
	default:
		f.settle(m, s, earlyRefresh)
	}
}
