package lock

import (
	"context"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// Claim is a lease without a place of its own: what the locks of this package have in common
// with the leases that package rebuild keeps in cache entries. It is (token, start), not the
// token alone: an acquire that the network held back can land again after its lease was revoked
// and re-create the token, but never the start.
//
// A Claim is renewed until End, or until it is lost. Its methods are safe for concurrent use.
type Claim struct {
	// Token names the attempt that got the lease.
	Token string
	// Start is the lease's fencing number: Redis server microseconds, and for one key
	// greater than that of every earlier lease.
	Start int64

	ctx     context.Context
	end     context.CancelCauseFunc
	link    *link.Link
	renewal *link.Renewal
}

// Hold keeps a lease that the server has granted: r says how it is renewed. Its Lost is the
// Claim's own.
func Hold(l *link.Link, token string, start int64, r link.Renewal) *Claim {
	ctx, end := context.WithCancelCause(context.Background())
	r.Lost = func(why error) { end(lostBecause(why)) }
	c := &Claim{Token: token, Start: start, ctx: ctx, end: end, link: l, renewal: &r}
	l.Leases.Add(c.renewal)
	return c
}

// Context ends when the lease does. Its cause is an [ErrLost], or [ErrReleased]; it never ends
// later than the lease in Redis, also when Redis cannot be reached.
func (c *Claim) Context() context.Context { return c.ctx }

// Deadline is when the lease ends unless it is renewed before.
func (c *Claim) Deadline() time.Time {
	return time.Now().Add(c.link.Clock.Until(c.ends()))
}

func (c *Claim) ends() link.Instant { return c.link.Leases.Ends(c.renewal) }

// End stops the renewing and ends the context. It does not tell Redis: what ends a lease
// there (a commit, a release) differs with what the lease is for. Calling it again does
// nothing.
func (c *Claim) End() { c.endFor(ErrReleased) }

func (c *Claim) endFor(why error) {
	c.link.Leases.Remove(c.renewal)
	c.end(why)
}
