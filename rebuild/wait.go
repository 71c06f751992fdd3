package rebuild

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// waiting is one node's wait for the holder of a lease, which is another node. It ends by an
// event: the wake-up that the script publishes which ends the lease. The end of the lease and
// a growing pause are the net under a lost message.
type waiting struct {
	f      *flight
	ears   *link.Listener
	ends   link.Instant // the holder's lease, as last seen
	holder string
	pause  time.Duration
	began  link.Instant
	limit  time.Duration // after which the caller does something else
}

// final tells whether err is the answer, rather than Redis being away.
func final(err error) bool {
	return errors.Is(err, ErrOverloaded) || errors.Is(err, ErrClosed) || errors.Is(err, ErrWaitTimeout)
}

// errAlone ends a wait that took WaitTimeout: this node loads by itself.
var errAlone = errors.New("levee: waited for WaitTimeout")

// wait returns when the entry is no longer held by somebody else. It subscribes first and then
// asks again, so no wake-up falls in between. Asking costs a slot, for the answer may be the
// lease.
func (f *flight) wait(s sight, v Verdict) (sight, error) {
	n := f.n
	n.Counts.Waits.Add(1)
	w := &waiting{f: f, pause: firstPause, began: n.clock.Now(), limit: n.patience(s, v)}
	w.ears = n.server.link.Hub.Listen(f.key.Channel)
	defer w.ears.Close()
	w.saw(s)
	for {
		event, err := w.sleep()
		if err != nil {
			return sight{}, w.out(v, err)
		}
		if event == woken || w.changed() {
			s, err = f.acquire(v, Wait)
			if err != nil || s.lease != nil || !s.view.Held {
				return s, err
			}
			w.saw(s)
		}
		f.budget = n.budget() // Redis answers: the time went to the holder
	}
}

// patience is how long to wait: with a stale value at hand for the grace, counted from the
// start of the holder's load; else for WaitTimeout; else as long as holders may live.
func (n *Node) patience(s sight, v Verdict) time.Duration {
	switch p := n.policy; {
	case v.Grace:
		return grace - time.Duration(s.now-s.entry.Start)*time.Microsecond
	case p.WaitTimeout > 0:
		return p.WaitTimeout
	default:
		return p.LoadTimeout + p.Lease
	}
}

// out is what a wait comes to that has taken too long.
func (w *waiting) out(v Verdict, err error) error {
	switch {
	case err != errAlone:
		return err
	case v.Grace:
		return errServeStale
	case w.f.n.policy.WaitTimeout > 0:
		return errAlone
	}
	return ErrWaitTimeout
}

func (w *waiting) saw(s sight) {
	w.holder = s.entry.Token
	w.ends = s.entry.leaseEnd(s.now, s.sent)
}

func (h Header) leaseEnd(now Micros, sent link.Instant) link.Instant {
	return sent.Add(time.Duration(h.LeaseUntil.micros()-now) * time.Microsecond)
}

type event bool

const (
	woken  event = true
	polled event = false
)

// sleep until something may have happened.
func (w *waiting) sleep() (event, error) {
	n := w.f.n
	now := n.clock.Now()
	left := w.limit - time.Duration(now-w.began)
	nap := min(spread(w.pause, rand.Float64()), max(time.Duration(w.ends-now), 0)+spread(time.Millisecond, rand.Float64()), left)
	w.pause = min(2*w.pause, lastPause)
	t := time.NewTimer(max(nap, 0))
	defer t.Stop()
	select {
	case <-w.ears.C:
		return woken, nil
	case <-n.life.done():
		return polled, ErrClosed
	case <-t.C:
	}
	if nap == left {
		return polled, errAlone
	}
	return polled, nil
}

// spread draws from half to one and a half of d, so that nodes do not poll in step.
func spread(d time.Duration, r float64) time.Duration { return d/2 + time.Duration(r*float64(d)) }

// changed polls by the header alone: is it still the same lease, and does it live?
func (w *waiting) changed() bool {
	f := w.f
	r, known, err := f.n.server.get(f.ctx, &f.budget, f.key, true)
	if err != nil || !known || !r.Found || r.Err != nil {
		return true // asking will tell
	}
	w.ends = r.Entry.leaseEnd(r.Now, r.Sent)
	return r.Entry.Token != w.holder || !r.Entry.view(r.Now).Held
}
