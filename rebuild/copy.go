package rebuild

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// Copy is a value, or "not found", in this node's memory: a pointer made by package cache,
// whose value this package does not look at. It is never changed once it has been kept.
type Copy interface {
	Meta() *Meta
}

// Meta is what this package knows of a Copy.
type Meta struct {
	Stamp
	rest  atomic.Int64 // a link.Instant: until then nobody claims the refresh
	tries atomic.Int32 // claims that found the lease held
}

// Stamp says what a Copy is and until when it is good for what, on the node's clock. What every hit
// looks at comes first, so that it lies on one cache line with the key.
type Stamp struct {
	Due      link.Instant // until then a hit need not think: the first of Early and Verify
	Kind     Kind
	Identity // zero for a value that Redis does not hold
	Row      uint64
	Loaded   link.Instant // when its load began
	Fresh    link.Instant
	Stale    link.Instant
	IfError  link.Instant
	Believed link.Instant  // until then it is served without asking Redis
	Verify   link.Instant  // from then on a hit also has Redis asked
	Early    link.Instant  // from then on a hit may also have it refreshed
	Cost     time.Duration // of a load, smoothed
	Lead     time.Duration // the unit of how long before Fresh a refresh begins
}

// Values is what package cache does for this one, which moves values without knowing their
// type. Load calls a user's code; Encode, Decode and Stamped return errors, they never panic.
type Values interface {
	// Lookup returns what this node holds of k, whatever its windows say, or nil.
	Lookup(k Key) Copy
	// Keep puts c into the local tier, Drop takes out what is there and makes sure that
	// nothing kept before comes back.
	Keep(k Key, c Copy)
	Drop(k Key)
	// Load runs the loader and calls done once. base is the value that it replaces, of this age,
	// or nil.
	Load(ctx context.Context, k Key, base Copy, age time.Duration, done func(Outcome, error))
	Encode(c Copy) (codec byte, payload []byte, err error)
	// Decode fails with ErrOtherCodec for a codec that it does not read.
	Decode(k Key, codec byte, payload string, s Stamp) (Copy, error)
	// Stamped returns c's value under another stamp; nil stands for "not found".
	Stamped(k Key, c Copy, s Stamp) Copy
}

// Outcome is what a loader answered.
type Outcome struct {
	Copy        Copy // nil with NotModified, and for "not found"
	NotModified bool
	NoStore     bool
	TTL         time.Duration // 0: the policy's; below: NoStore
	Row         uint64
}

// ErrOtherCodec is returned by Values.Decode.
var ErrOtherCodec = errors.New("the entry was written by another codec")

// At judges a copy at i.
func (s *Stamp) At(i link.Instant) State {
	if s.Kind == KindNotFound {
		if i < s.Fresh {
			return NotFound
		}
		return Gone
	}
	return window(i < s.Fresh, i < s.Stale, i < s.IfError)
}

// stampOf says what an entry is good for on this node, given that it was read by a request
// sent at sent when the server's clock showed now.
func (n *Node) stampOf(h Header, now Micros, sent link.Instant) Stamp {
	local := func(m Millis) link.Instant { return sent.Add(time.Duration(m.micros()-now) * time.Microsecond) }
	s := Stamp{
		Identity: Identity{h.Version, strings.Clone(h.Writer)}, // not a part of the whole reply
		Row:      h.Row,
		Kind:     h.Kind,
		Loaded:   sent.Add(time.Duration(h.Version-now) * time.Microsecond),
		Fresh:    local(h.Fresh),
		Stale:    local(h.Stale),
		IfError:  local(h.IfError),
	}
	if h.Version > now+aheadOf {
		s.Fresh, s.Loaded = sent, sent
	}
	s.prepare(h.Cost, n.policy.EarlyRefresh)
	s.believe(sent, n.policy.LocalTTL)
	return s
}

// believe sets how long the copy is served unasked, counted from since, when what it says was
// known to be true. Not found, and what Redis has given up, is not believed longer than it
// is kept.
func (s *Stamp) believe(since link.Instant, d time.Duration) {
	s.Believed = min(since.Add(d), max(s.Fresh, s.IfError))
	s.Verify = since.Add(d - d/5)
	s.Due = min(s.Early, s.Verify)
}

// ownStamp is for a value that this node loaded, at began, and that Redis does not hold: its
// windows begin now, but it is believed from the load's start only, since a delete on another
// node may have come after it.
func (n *Node) ownStamp(e content, began link.Instant, cost time.Duration) Stamp {
	now := n.clock.Now()
	p := n.policy
	fresh, stale, ifError := p.windows(e.kind, e.ttl)
	s := Stamp{Row: e.row, Kind: e.kind, Loaded: began, Fresh: now.Add(fresh), Stale: now.Add(stale), IfError: now.Add(ifError)}
	s.prepare(cost, p.EarlyRefresh)
	if n.server.link == nil {
		s.Believed, s.Verify, s.Due = max(s.Fresh, s.Stale), s.Fresh, s.Early
		return s
	}
	s.believe(began, p.LocalTTL)
	return s
}

// Rests tells whether a claim at now would be in vain.
func (m *Meta) Rests(now link.Instant) bool { return m.rest.Load() > int64(now) }

// claim takes the background work for a hit on this copy: one caller gets it, until it rests
// again. A copy that is replaced takes its claim with it.
func (m *Meta) claim(now link.Instant) bool {
	rest := m.rest.Load()
	return rest <= int64(now) && m.rest.CompareAndSwap(rest, int64(now.Add(time.Hour)))
}

// restFor lets nobody claim for d from now.
func (m *Meta) restFor(now link.Instant, d time.Duration) { m.rest.Store(int64(now.Add(d))) }

// restHeld is the pause after the lease was found held: 50 ms, doubling to 500 ms.
func (m *Meta) restHeld(now link.Instant) {
	m.restFor(now, min(firstPause<<min(m.tries.Add(1)-1, 10), lastPause))
}
