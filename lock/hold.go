package lock

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// hold is one lock that this process has: the claim in Redis, and the leases that share it.
type hold struct {
	*Claim
	locker    *Locker
	name, key string
	attempt   *attempt
	settings  *settings
	since     link.Instant
	parent    context.Context // that Lock was called with, for its values

	silent atomic.Bool // the last renewal had no answer
	warned atomic.Bool

	forgotten atomic.Bool // by who held it

	outcome string // of what a Once has run under it; set before it is given back

	once   sync.Once // giving back
	result error     // of it; read only after once

	mu     sync.Mutex // guards leases
	leases int        // that were not given back; 0 ends the hold
}

// granted is what the server has given: a lease that began with an answer, or one that a message told of.
type granted struct {
	fence int64
	sent  link.Instant // the lease is at least as long as settings say, from then on
	ends  link.Instant // or, if not 0, it ends then, and is to be renewed soon
}

// hold keeps what was granted to an attempt. The context has the values of ctx.
func (k *Locker) hold(ctx context.Context, w asking, g granted) *hold {
	now := k.link.Clock.Now()
	h := &hold{locker: k, name: w.name, key: w.key, attempt: w.attempt, settings: w.settings, since: now, parent: ctx, leases: 1}
	ctx, end := context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), holding{}, h))
	r := &link.Renewal{
		Call: k.scriptCall(w.key, scripts.renew, w.token, millis(w.lease)),
		Sent: g.sent, Lease: w.lease, Every: time.Duration((0.95 + rand.Float64()/20) * float64(w.lease/3)),
		Lost: h.lost, Judge: h.judge, Early: w.early(), Fixed: w.fixed,
	}
	if g.ends != 0 {
		r.Ends, r.Due = g.ends, now.Add(claim/3)
	}
	if w.maxHold != Off {
		r.Until = now.Add(w.maxHold)
	}
	h.Claim = &Claim{Token: w.token, Start: g.fence, ctx: ctx, end: end, link: k.link, renewal: r}
	k.add(h)
	k.link.Leases.Add(r)
	return h
}

// age is how long it has been held.
func (h *hold) age() time.Duration { return time.Duration(h.link.Clock.Now() - h.since) }

func (h *hold) event(kind Kind, err error) Event {
	return Event{Kind: kind, Name: h.name, Key: h.key, Token: h.Token, Fence: h.Start, Hold: h.age(), Err: err}
}

// judge reads the answer to a renewal.
func (h *hold) judge(r link.Reply) link.Verdict {
	if r.Err != nil {
		err := kindOf(h.key, r.Err)
		if isConflict(err) {
			return link.Verdict{Lost: &LostError{Reason: Overwritten}}
		}
		h.silent.Store(true)
		h.locker.tell(h.event(NotRenewed, err))
		return link.Verdict{}
	}
	h.silent.Store(false)
	a, err := readAnswer(r.Values, 0)
	switch {
	case err != nil:
		return link.Verdict{}
	case a.status == statusHeld:
		h.warn()
		h.noteForgotten()
		return link.Verdict{Held: true}
	}
	return link.Verdict{Lost: h.lostFor(a)}
}

// reasons are the server's words for why a lease is gone.
var reasons = map[string]Reason{"expired": Expired, "taken": Taken, "broken": Broken, "gone": Gone, "foreign": Overwritten}

// lostFor reads why a lease was lost. One that has ended in Redis before it could, by our clock, has ended by a
// clock that was set.
func (h *hold) lostFor(a answer) *LostError {
	e := &LostError{Reason: reasons[a.text(0)]}
	switch {
	case e.Reason == Taken:
		e.By = a.int(1)
	case e.Reason == Expired && h.link.Clock.Until(h.ends()) > 0:
		e.Reason = ClockStep
	}
	return e
}

// warn tells once that the lock is held for long.
func (h *hold) warn() {
	after := h.settings.warnAfter()
	if after >= 0 && h.age() >= after && !h.warned.Swap(true) {
		h.locker.tell(h.event(HeldLong, nil))
	}
}

// lost ends the context when the lease has ended, or may not go on. What is told of it is told elsewhere: leases
// of others wait for the goroutine that calls.
func (h *hold) lost(why error) {
	why = h.explain(lostBecause(why))
	h.end(why)
	h.locker.life.aside(func() { h.locker.tell(h.event(Lost, why)) })
}

// explain fills in whose lease was lost, and why it ran out.
func (h *hold) explain(why error) error {
	e, ok := why.(*LostError)
	if !ok {
		return why
	}
	e.Name, e.Fence = h.name, h.Start
	if e.Reason == Expired && h.silent.Load() {
		e.Reason = Unreachable
	}
	return e
}
