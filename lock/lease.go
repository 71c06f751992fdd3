package lock

import (
	"context"
	"errors"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

var (
	// ErrExpired is the cause of a lease that could not be renewed before its deadline.
	ErrExpired = link.ErrExpired
	// ErrTaken is the cause of a lease that was revoked, or ran out and is held by another.
	ErrTaken = link.ErrTaken
	// ErrReleased is the cause of a lease that its holder gave up.
	ErrReleased = errors.New("the lease was released")
)

// Lease is a claim on one key. It is (token, start), not the token alone: an acquire that
// the network held back can land again after its lease was revoked and re-create the token,
// but never the start.
//
// A Lease is renewed until End, or until it is lost. Its methods are safe for concurrent use.
type Lease struct {
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
// Lease's own.
func Hold(l *link.Link, token string, start int64, r link.Renewal) *Lease {
	ctx, end := context.WithCancelCause(context.Background())
	r.Lost = end
	lease := &Lease{Token: token, Start: start, ctx: ctx, end: end, link: l, renewal: &r}
	l.Leases.Add(lease.renewal)
	return lease
}

// Context ends when the lease does. Its cause is [ErrExpired], [ErrTaken] or [ErrReleased];
// it never ends later than the lease in Redis, also when Redis cannot be reached.
func (l *Lease) Context() context.Context { return l.ctx }

// Deadline is when the lease ends unless it is renewed before.
func (l *Lease) Deadline() time.Time {
	return time.Now().Add(l.link.Clock.Until(l.link.Leases.Ends(l.renewal)))
}

// End stops the renewing and ends the context. It does not tell Redis: what ends a lease
// there (a commit, a release) differs with what the lease is for. Calling it again does
// nothing.
func (l *Lease) End() {
	l.link.Leases.Remove(l.renewal)
	l.end(ErrReleased)
}
