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
	Since    link.Instant // when what it says was known to be true: belief counts from here
	Sound    link.Instant // from then on a hit also has Redis asked, if changes may go unheard
	Kind     Kind
	tagged   bool // it has marks
	Identity      // zero for a value that Redis does not hold
	Row      uint64
	Loaded   link.Instant // when its load began
	Fresh    link.Instant
	Stale    link.Instant
	IfError  link.Instant
	Sure     link.Instant  // until then it is believed though changes may go unheard
	Believed link.Instant  // until then it is served without asking Redis, at the most
	Verify   link.Instant  // from then on a hit also has Redis asked
	Early    link.Instant  // from then on a hit may also have it refreshed
	Cost     time.Duration // of a load, smoothed
	Lead     time.Duration // the unit of how long before Fresh a refresh begins
	space    int64         // the namespace's generation that it was loaded under
	marks    []mark        // and those of its tags
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
	// Hash is what a Key of this text has.
	Hash(text string) uint64
	// DropAll does so for all keys.
	DropAll()
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
	Tags        []string // nil with NotModified: those of the base
}

// ErrOtherCodec is returned by Values.Decode.
var ErrOtherCodec = errors.New("the entry was written by another codec")

// At judges a copy at i.
func (s *Stamp) At(i link.Instant) State {
	if !s.tagged {
		return s.plainAt(i)
	}
	marked := s.marked()
	return marked.plainAt(i)
}

// marked is the stamp as its tags leave it.
func (s *Stamp) marked() Stamp {
	if s.ended() {
		return Stamp{}
	}
	if i, ok := s.softened(); ok {
		return s.moved(i)
	}
	return *s
}

func (s *Stamp) plainAt(i link.Instant) State {
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
	n.lived(time.Duration(max(s.Fresh, s.IfError) - s.Loaded))
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
	unheard := min(d, unheardFor)
	s.Since, s.Sure, s.Sound = since, since.Add(unheard), since.Add(unheard-unheard/5)
	s.Believed = min(since.Add(d), max(s.Fresh, s.IfError))
	s.Verify = since.Add(d - d/5)
	s.Due = min(s.Early, s.Verify)
}

// since lets belief end d after asked, when part of what the copy says was known to be true. It is verified as soon as before,
// or copies that have that part in common would be at one time.
func (s *Stamp) since(asked link.Instant, d time.Duration) {
	if asked >= s.Since {
		return
	}
	s.Since = asked
	s.Sure = min(s.Sure, asked.Add(min(d, unheardFor)))
	s.Believed = min(s.Believed, asked.Add(d))
}

// Believes tells whether a copy may be served at now without asking Redis, as far as its windows go.
func (n *Node) Believes(m *Meta, now link.Instant) bool {
	return now < m.Believed && n.trusts(m.Since, m.Sure, now)
}

// trusts tells whether nothing has changed unheard for what was asked for at since; changes may go
// unheard until sure.
func (n *Node) trusts(since, sure, now link.Instant) bool {
	return believes(n.trust, since, sure, now) && (n.tracked == nil || believes(n.tracked, since, sure, now))
}

func believes(t *link.Trust, since, sure, now link.Instant) bool {
	// Hears comes first: where a gap is over, the floor was raised before.
	return (now < sure || t.Hears(now)) && since >= t.Floor()
}

// Sound tells whether a copy is believed, and for long enough: as far as its windows go, nobody needs
// to be asked.
func (n *Node) Sound(m *Meta, now link.Instant) bool {
	return now < m.Verify && n.trusts(m.Since, m.Sound, now) && (!m.tagged || m.current())
}

// ownStamp is for a value that this node loaded, at began, and that Redis does not hold: its
// windows begin now, but it is believed from the load's start only, since a delete on another
// node may have come after it.
func (n *Node) ownStamp(k Key, e content, began link.Instant, cost time.Duration) Stamp {
	now := n.clock.Now()
	p := n.policy
	fresh, stale, ifError := p.windows(e.kind, e.ttl)
	s := Stamp{Row: e.row, Kind: e.kind, Loaded: began, Fresh: now.Add(fresh), Stale: now.Add(stale), IfError: now.Add(ifError),
		space: e.space, marks: e.marks, tagged: len(e.marks) > 0}
	if !e.setter {
		n.shorten(&s, k)
	}
	s.prepare(cost, p.EarlyRefresh)
	if n.server.link == nil {
		s.alone(began)
		return s
	}
	s.believe(began, p.LocalTTL)
	return s
}

// lived remembers how long a value may be served, from its load on: it may have a TTL of its own.
func (n *Node) lived(d time.Duration) {
	for {
		longest := n.longest.Load()
		if int64(d) <= longest || n.longest.CompareAndSwap(longest, int64(d)) {
			return
		}
	}
}

// longestLife is how long a value may be served, as far as this node has met any.
func (n *Node) longestLife() time.Duration {
	return max(n.policy.TTL+n.policy.IfError, time.Duration(n.longest.Load()))
}

// alone is believe for a node without Redis: nobody else changes anything.
func (s *Stamp) alone(since link.Instant) {
	s.Since, s.Believed, s.Verify, s.Due = since, max(s.Fresh, s.Stale), s.Fresh, s.Early
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
