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
	holder string       // the token of its lease
	ends   link.Instant // that lease, as last seen
	limit  link.Instant // then the caller does something else
	pause  time.Duration
}

// final tells whether err is the answer, rather than Redis being away.
func final(err error) bool {
	return errors.Is(err, ErrOverloaded) || errors.Is(err, ErrClosed) || errors.Is(err, ErrWaitTimeout) || errors.Is(err, errDeserted)
}

// errAlone ends a wait that took WaitTimeout: this node loads by itself.
var errAlone = errors.New("levee: waited for WaitTimeout")

// wait returns when there is something else to do than to wait. It subscribes first and then asks
// again, so no wake-up falls in between. It never gets the lease: that takes a slot, and what it
// waits for needs none.
func (f *flight) wait(s sight, v Verdict) (sight, error) {
	n := f.n
	n.Counts.Waits.Add(1)
	w := &waiting{f: f, pause: firstPause}
	w.ears = n.server.link.Hub.Listen(f.key.Channel)
	defer w.ears.Close()
	w.saw(s, v)
	for {
		event, err := w.sleep()
		if err != nil {
			return sight{}, w.out(v, err)
		}
		if event == woken || w.changed() {
			s, err = f.ask(Wait)
			if err != nil || Decide(s.view, f.awaits()).Deed != Await {
				return s, err
			}
			w.saw(s, v)
		}
		f.budget = n.budget() // Redis answers: the time went to the holder
	}
}

// awaits is what a flight that waits wants.
func (f *flight) awaits() taste {
	if f.refresh {
		return onlyFresh
	}
	return f.want.taste()
}

// saw takes note of who holds the lease. With a stale value at hand the wait ends with the grace,
// counted from the start of the holder's load; with WaitTimeout set, after that; else it goes on
// as long as this holder may live.
func (w *waiting) saw(s sight, v Verdict) {
	p, first, newcomer := w.f.n.policy, w.holder == "", w.holder != s.entry.Token
	w.holder, w.ends = s.entry.Token, s.entry.leaseEnd(s.now, s.sent)
	started := s.sent.Add(time.Duration(s.entry.Start-s.now) * time.Microsecond)
	switch {
	case v.Grace && !v.Patient && first:
		w.limit = started.Add(grace)
	case v.Grace && !v.Patient || p.WaitTimeout > 0 && !first:
	case p.WaitTimeout > 0:
		w.limit = w.f.n.clock.Now().Add(p.WaitTimeout)
	case newcomer:
		w.limit = started.Add(p.LoadTimeout + p.Lease)
	}
}

// out is what a wait comes to that has taken too long.
func (w *waiting) out(v Verdict, err error) error {
	switch {
	case err != errAlone:
		return err
	case v.Grace:
		return errSlow
	case w.f.n.policy.WaitTimeout > 0:
		return errAlone
	}
	return ErrWaitTimeout
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
	left := time.Duration(w.limit - now)
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
