package rebuild

import (
	"context"
	"errors"
	"time"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/lock"
)

// flight is one read of one key, for everybody who asks for it meanwhile. It belongs to one
// goroutine.
type flight struct {
	n       *Node
	ctx     context.Context // the first caller's values, nobody's cancellation
	gone    context.Context // ends when nobody waits for the flight; nil: that does not matter
	key     Key
	want    Want
	refresh bool // only what a load brings that began after the call
	budget  link.Budget
	ticket  *ticket
	ends    uint64 // how many tags had ended before it began

	held Copy   // the newest value known: this node's at first, or nil
	bar  Micros // an entry below this version is not good enough
}

// sight is what was last seen of the entry.
type sight struct {
	view  View
	entry Entry
	over  bool // its generations have ended it
	now   Micros
	sent  link.Instant
	copy  Copy        // of what may be served
	lease *lock.Claim // ours, if the entry was leased to us
	slot  func()      // gives the bulkhead's slot back, if lease is set

	failure error // that this process remembers; only of what is known without Redis
}

// newFlight takes a ticket; one that counts as a load's makes void what reads under way bring.
func (n *Node) newFlight(ctx context.Context, k Key, refresh bool) *flight {
	return &flight{n: n, ctx: ctx, key: k, refresh: refresh, budget: n.budget(), ends: n.tags.ends.Load(),
		ticket: n.running.begin(k.Text, refresh)}
}

// fly answers one read.
func (n *Node) fly(ctx, gone context.Context, k Key, w Want) (Answer, error) {
	if !n.life.enter() {
		return Answer{}, ErrClosed
	}
	defer n.life.leave()
	for {
		a, err := n.read(ctx, gone, k, w)
		if err != errEnded {
			return a, err
		}
	}
}

// read looks at the local tier again: between a caller's look and this flight another one may have ended
// and kept what it brought.
func (n *Node) read(ctx, gone context.Context, k Key, w Want) (Answer, error) {
	f := n.newFlight(ctx, k, false)
	defer n.running.end(f.ticket)
	f.want, f.gone = w, gone
	if a, ok := f.fromMemory(); ok {
		return a, nil
	}
	if n.server.link == nil {
		return f.alone(nil)
	}
	s, err := f.look()
	if err != nil {
		return f.without(err)
	}
	return f.act(s)
}

// hold takes what this node has, or nil, as the value at hand. An entry that is fresh for Redis is not
// if its freshness has been ended by a tag.
func (f *flight) hold(c Copy) {
	if c != nil {
		m := c.Meta()
		if m.ended() {
			return
		}
		if _, soft := m.softened(); soft {
			f.bar = max(f.bar, m.Version+1)
		}
		f.held = c
	}
}

// fromMemory serves what this node holds and still believes.
func (f *flight) fromMemory() (Answer, bool) {
	if f.want.SkipLocal && f.n.server.link != nil {
		return Answer{}, false
	}
	f.hold(f.n.values.Lookup(f.key))
	if f.held == nil {
		return Answer{}, false
	}
	m, now := f.held.Meta(), f.n.clock.Now()
	state := m.At(now)
	v := Decide(View{State: state}, f.want.taste())
	if !f.n.Believes(m, now) || v.Deed != Serve {
		return Answer{}, false
	}
	f.tend(f.held, v)
	return Answer{Copy: f.held, Source: Local, State: state}, true
}

// look reads the entry in the cheapest way that can be enough: what is known to be stale
// goes to acquire at once, a copy that is only not believed any more is verified by its
// header, anything else is read whole.
func (f *flight) look() (sight, error) {
	header := false
	if f.held != nil {
		if f.held.Meta().At(f.n.clock.Now()) == Stale && f.want.taste() == anything && !f.want.NoStore {
			return f.askInBackground()
		}
		header = f.held.Meta().Identity != Identity{}
	}
	s, err := f.get(header)
	if err == nil && header && s.unverified(f.held) {
		return f.get(false)
	}
	return s, err
}

// unverified tells that the header showed something else than what is held.
func (s sight) unverified(held Copy) bool {
	return (s.view.State.value() || s.view.State == NotFound) && s.entry.Identity != held.Meta().Identity
}

// value tells whether there is a value to serve in some way.
func (s State) value() bool { return s == Fresh || s == Stale || s == IfError }

// get reads by GET, or by acquire in mode look where that cannot be trusted: on replicas, and
// as long as the clock of the master is not known.
func (f *flight) get(header bool) (sight, error) {
	n := f.n
	if n.server.link.ReadsReplicas {
		return f.ask(Look)
	}
	r, known, err := n.server.get(f.ctx, &f.budget, f.key, header)
	switch {
	case err != nil:
		return sight{}, err
	case !known:
		return f.ask(Look)
	case r.Err != nil:
		f.unreadable(r.Err)
		return sight{now: r.Now, sent: r.Sent}, nil
	case !r.Found:
		return sight{now: r.Now, sent: r.Sent}, nil
	}
	return f.see(r.Entry, r.Now, r.Sent)
}

// unreadable counts what stands under the key and is not an entry of it: it gets rebuilt.
func (f *flight) unreadable(err error) {
	n := f.n
	if errors.Is(err, errWrongKey) {
		n.Counts.WrongKey.Add(1)
		n.policy.Logger.Error("levee: Redis answered with the entry of another key", "key", f.key.Redis)
		return
	}
	n.Counts.Undecodable.Add(1)
	n.policy.Logger.Warn("levee: not an entry, it will be rebuilt", "key", f.key.Redis, "error", err)
}

// see judges an entry and makes the copy of what may be served.
func (f *flight) see(e Entry, now Micros, sent link.Instant) (sight, error) {
	s := sight{view: e.view(now), entry: e, now: now, sent: sent}
	stamp := f.n.stampOf(e.Header, now, sent)
	if err := f.judge(&s, &stamp); err != nil {
		return s, err
	}
	switch {
	case s.view.State == NotFound:
		s.copy = f.n.values.Stamped(f.key, nil, stamp)
	case !s.view.State.value():
	case f.held != nil && f.held.Meta().Identity == e.Identity:
		s.copy = f.n.values.Stamped(f.key, f.held, stamp)
	default:
		f.decode(&s, stamp)
	}
	if s.copy != nil && s.view.State.value() {
		f.held = s.copy
	}
	return s, nil
}

// decode makes the copy out of the payload. A fresh entry of another codec belongs to a newer
// or older version of the service and is left to it; what cannot be read is rebuilt.
func (f *flight) decode(s *sight, stamp Stamp) {
	n := f.n
	if s.entry.Payload == "" && s.entry.Body > 0 {
		return // only the header was asked for
	}
	c, err := n.values.Decode(f.key, s.entry.Codec, s.entry.Payload, stamp)
	switch {
	case err == nil:
		s.copy = c
	case errors.Is(err, ErrOtherCodec) && s.view.State == Fresh:
		n.Counts.OtherCodec.Add(1)
		s.view.State = Foreign
	default:
		if !errors.Is(err, ErrOtherCodec) {
			n.Counts.Undecodable.Add(1)
			n.policy.Logger.Warn("levee: the payload cannot be decoded, it will be rebuilt", "key", f.key.Redis, "error", err)
		}
		f.bar = max(f.bar, s.entry.Version+1)
		s.view.State = Gone
	}
}

// errNothing tells one who only looks that there is nothing to serve.
var errNothing = errors.New("nothing to serve")

// act does what was decided, until there is an answer.
func (f *flight) act(s sight) (Answer, error) {
	for {
		var err error
		v := Decide(s.view, f.want.taste())
		switch {
		case s.lease != nil:
			return f.lead(s, v)
		case v.Deed == Serve:
			return f.serve(s, v), nil
		case v.Deed == Refuse:
			return Answer{}, f.refusal(s)
		case f.want.spent:
			return Answer{}, errNothing
		}
		if l := f.n.running.join(f.key.Text); l != nil { // whoever holds the lease, it is here
			if f.n.joinable(l) {
				return f.await(l, s, v)
			}
			f.n.running.leave(l)
		}
		switch {
		case v.Deed == Beside:
			return f.beside(s, v)
		case v.Deed == Await:
			s, err = f.wait(s, v)
		case f.want.NoStore:
			return f.beside(s, v)
		default:
			s, err = f.acquire(v)
		}
		if err != nil {
			return f.without(err)
		}
	}
}

// without answers when the entry could not be asked any further.
func (f *flight) without(err error) (Answer, error) {
	switch {
	case errors.Is(err, errNoSlot):
		return f.serveLate(f.held, nil, ErrOverloaded)
	case errors.Is(err, errSlow):
		return f.serveLate(f.held, nil, ErrWaitTimeout)
	case final(err):
		return Answer{}, err
	}
	return f.alone(err)
}

// serve answers with what is in Redis, and keeps it.
func (f *flight) serve(s sight, v Verdict) Answer {
	n := f.n
	if !f.want.NoStore {
		n.running.keep(f.ticket, func() { n.values.Keep(f.key, s.copy) })
	}
	if !s.view.Backoff {
		n.failed.clear(f.key.Text)
	}
	n.Counts.Remote.Add(1)
	f.tend(s.copy, v)
	a := Answer{Copy: s.copy, Source: Remote, State: s.view.State}
	if s.view.Backoff && (a.State == Stale || a.State == IfError) {
		a.Err = f.refusal(s)
	}
	return a
}

// tend has a copy that is served seen to, where that is due.
func (f *flight) tend(c Copy, v Verdict) {
	if !f.want.NoStore && (v.Refresh || c.Meta().At(f.n.clock.Now()) == Fresh && f.n.Calls(c.Meta(), f.n.clock.Now())) {
		f.n.Tend(f.ctx, f.key, c)
	}
}

// serveLate answers with a stale value after the refresh failed with err, or took too long; if its
// windows have ended meanwhile, with otherwise.
func (f *flight) serveLate(c Copy, err, otherwise error) (Answer, error) {
	a := Answer{Copy: c, Source: Remote, State: c.Meta().At(f.n.clock.Now()), Err: err}
	if a.State == Gone {
		return Answer{}, otherwise
	}
	if f.n.values.Lookup(f.key) == c {
		a.Source = Local
	}
	f.n.Counts.StaleOnError.Add(1)
	return a, nil
}

// refusal is the failure that Redis remembers; the node where it happened knows it whole.
func (f *flight) refusal(s sight) error {
	f.n.Counts.Backoffs.Add(1)
	left := s.backoff()
	if own, ok := f.n.failed.recall(f.key.Text); ok {
		own.RetryAfter = left
		return own
	}
	return &BackoffError{RetryAfter: left, Message: s.entry.Message, Remote: true}
}

// backoff is how long the key is still left alone.
func (s sight) backoff() time.Duration {
	return time.Duration(s.entry.RetryAfter.micros()-s.now) * time.Microsecond
}
