package rebuild

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/lock"
)

// attempt is a token on its way to Redis. go-redis marshals an argument each time it writes a
// command, so the count tells whether the client has sent it more than once: then a first
// attempt may still be in the network and land late.
type attempt struct {
	token string
	sent  atomic.Int32
}

// MarshalBinary gives the token to the client.
func (a *attempt) MarshalBinary() ([]byte, error) {
	a.sent.Add(1)
	return []byte(a.token), nil
}

// String is for those who print commands, such as tracing: else they would read the count while it is written.
func (a *attempt) String() string { return a.token }

// Refused takes back one that the server has answered without having done anything.
func (a *attempt) Refused() { a.sent.Add(-1) }

// farthest is a bar above every version.
const farthest Micros = 1<<53 - 1

// errLate is returned if Redis found a command too late twice: it is as good as away.
var errLate = errors.New("redis executes commands later than the time budget allows")

// ask sends an acquire. One that Redis calls late is repeated once: the answer has corrected
// the clock.
func (f *flight) ask(mode Mode) (sight, error) {
	if mode == Try { // a load is of the generation that stood before it
		if err := f.n.learn(f.ctx, &f.budget, f.n.space); err != nil {
			return sight{}, err
		}
	}
	for range 2 {
		r, a, err := f.n.acquire(f.ctx, &f.budget, f.key, mode, f.have(), f.bar)
		switch {
		case err != nil:
			return sight{}, err
		case r.Status == statusLate:
			continue
		case r.Status == statusUnreadable:
			f.unreadable(errNoEntry)
			fallthrough
		case r.Status == statusAbsent:
			return sight{now: r.Now, sent: r.Sent}, nil
		}
		s, err := f.see(r.Entry, r.Now, r.Sent)
		if r.Status == statusLeased {
			s.lease = f.n.hold(f.key, a.token, r)
		}
		s.obey(r.Status)
		if err != nil && s.lease != nil {
			f.n.giveBackLease(f.ctx, f.key, s.lease)
			s.lease = nil
		}
		return s, err
	}
	return sight{}, errLate
}

// obey takes over what the script decided where the bar made it decide otherwise than the entry
// alone would.
func (s *sight) obey(status Status) {
	if (status == statusHeld || status == statusBackoff || status == statusLeased || status == statusIdle) && (s.view.State == Fresh || s.view.State == NotFound) {
		s.view.State, s.copy = Gone, nil // below the bar
	}
}

// have is the identity of the value at hand, whose payload need not be sent again.
func (f *flight) have() string {
	if f.held == nil {
		return ""
	}
	return f.held.Meta().Identity.text()
}

func (i Identity) text() string {
	if i.Writer == "" {
		return ""
	}
	return string(appendHex(nil, fVersion, int64(i.Version))) + i.Writer
}

// acquire calls the script under a new token. If its fate is unknown, or if it was sent twice,
// the token is given back after the instant from which Redis refuses it: no lease is left that
// nobody knows of. A lease that was granted is not touched by that.
func (n *Node) acquire(ctx context.Context, b *link.Budget, k Key, mode Mode, have string, bar Micros) (reply, *attempt, error) {
	a := &attempt{token: lock.NewToken()}
	notAfter, err := n.server.notAfter(ctx, b, k, link.Spared)
	if err != nil {
		return reply{}, a, err
	}
	r, err := n.server.run(ctx, b, link.Spared, k, scripts.acquire,
		a, millis(n.policy.Lease), have, int64(bar), string(mode), int64(notAfter))
	switch {
	case mode != Try || link.NotSent(err):
	case errors.Is(err, link.ErrUnavailable):
		n.giveBack(ctx, k, a.token, 0, true)
	case a.twice():
		n.giveBack(ctx, k, a.token, r.granted(), false)
	}
	return r, a, err
}

// granted is the start of the lease that r grants, or 0.
func (r reply) granted() Micros {
	if r.Status == statusLeased {
		return r.Entry.Start
	}
	return 0
}

// twice tells whether a first attempt may still be on its way.
func (a *attempt) twice() bool { return a.sent.Load() > 1 }

// notAfter is the server's time after which a command sent now is no longer wanted.
func (s server) notAfter(ctx context.Context, b *link.Budget, k Key, class link.Class) (Micros, error) {
	clock := s.link.Clock
	master := s.link.Master(ctx, k.Redis)
	now, ok := clock.ServerMicros(master, clock.Now())
	if ok {
		return Micros(now) + Micros(b.Left.Microseconds()), nil
	}
	now, err := link.Call(ctx, s.link, b, class, func(ctx context.Context) (int64, error) {
		sent := clock.Now()
		t, err := s.link.TimeOf(ctx, k.Redis)
		if err == nil {
			clock.Observe(s.link.Master(ctx, k.Redis), sent, clock.Now(), t.UnixMicro())
		}
		return t.UnixMicro(), err
	})
	return Micros(now) + Micros(b.Left.Microseconds()), err
}

// giveBack releases a token under which a lease may be, or come to be, other than the one that
// began at except: now, if its fate is unknown, and once more when Redis will no longer grant it.
func (n *Node) giveBack(ctx context.Context, k Key, token string, except Micros, now bool) {
	behind := n.life.run(func() {
		if now {
			n.release(ctx, k, token, 0, except)
		}
		for range 2 { // the second for an answer that was lost, and a clock that was known badly
			n.sleep(n.policy.RedisTimeout + time.Millisecond)
			if now && n.life.ended() {
				return // once is all that Close waits for
			}
			n.release(ctx, k, token, 0, except)
			now = now || n.life.ended()
		}
	})
	if !behind { // closing: there is no later
		n.release(ctx, k, token, 0, except)
	}
}

// giveBackLease gives back a lease that nothing will be loaded under.
func (n *Node) giveBackLease(ctx context.Context, k Key, l *lock.Claim) {
	l.End()
	n.release(ctx, k, l.Token, Micros(l.Start), 0)
}

// release gives back the lease that began at start; 0 stands for any but the one at except.
func (n *Node) release(ctx context.Context, k Key, token string, start, except Micros) {
	b := n.budget()
	_, _ = n.server.run(ctx, &b, link.Urgent, k, scripts.release, token, int64(start), int64(except)) // it runs out by itself
}

// hold renews a lease that was granted. Newcomers join its load as long as it is held, so they
// must learn that it was revoked as soon as they would of a copy whose message is lost.
func (n *Node) hold(k Key, token string, r reply) *lock.Claim {
	p, start := n.policy, int64(r.Entry.Start)
	return lock.Hold(n.server.link, token, start, link.Renewal{
		Call:  n.server.call(k, scripts.renew, token, start, millis(p.Lease)),
		Sent:  r.Sent,
		Lease: p.Lease,
		Every: max(min(p.LocalTTL, unheardFor)*4/5-p.RedisTimeout, leastRenewal), // the commit may take that long
	})
}

// leastRenewal bounds how often a lease is renewed, however short LocalTTL is.
const leastRenewal = 100 * time.Millisecond
