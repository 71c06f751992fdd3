package link

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"sync"
	"time"
)

var (
	// ErrExpired is the cause of a lease that could not be renewed before its deadline.
	ErrExpired = errors.New("the lease ran out before it could be renewed")
	// ErrTaken is the cause of a lease that is no longer in Redis: it was deleted or revoked,
	// or it ran out and somebody else holds it now.
	ErrTaken = errors.New("the lease is no longer in Redis")
	// ErrHeldTooLong is the cause of a lease that was held for as long as it may be.
	ErrHeldTooLong = errors.New("the lease was held for as long as it may be")
)

// Renewal keeps one lease alive. Its fields are written before Add and then belong to the
// Renewer.
type Renewal struct {
	Call  ScriptCall    // the script that renews; answers "held" or "lost"
	Sent  Instant       // when the lease was asked for
	Lease time.Duration // its length, which a renewal begins anew
	Every time.Duration // how often it is renewed; a third of Lease at the most
	Lost  func(error)   // called once, from a goroutine of the Renewer, when it has ended

	// What follows may be left out.

	Judge func(Reply) Verdict // reads the answer, in place of "held" or "lost"; Err is also of a call that had none
	Early time.Duration       // how long before its end it is taken to be lost
	Ends  Instant             // of the first lease, if it is another than Lease from Sent
	Due   Instant             // for the first renewal, if other than after Every
	Fixed bool                // it is not renewed
	Until Instant             // after which it is not renewed, and lost for having been held too long

	ends   Instant // unless it is renewed
	wall   int64   // the same on the wall clock, which goes on while the machine sleeps, in ns
	due    Instant // for renewal
	busy   bool    // a renewal is on its way
	master string  // of the key
}

// Verdict is what the answer to a renewal comes to.
type Verdict struct {
	Held bool
	Lost error // nil if nothing is known, and the renewal is to be tried again
}

// judge reads an answer.
func (r *Renewal) judge(reply Reply) Verdict {
	switch {
	case r.Judge != nil:
		return r.Judge(reply)
	case reply.Err != nil || len(reply.Values) == 0:
		return Verdict{}
	case reply.Values[0] == "held":
		return Verdict{Held: true}
	}
	return Verdict{Lost: ErrTaken}
}

// over says why the lease has ended, or nil.
func (r *Renewal) over(now Instant) error {
	switch {
	case now >= r.ends.Add(-r.Early):
		return ErrExpired
	case r.Until > 0 && now >= r.Until:
		return ErrHeldTooLong
	}
	return nil
}

// wakes is when the renewal has to be looked at.
func (r *Renewal) wakes() Instant {
	next := r.ends.Add(-r.Early)
	if r.Until > 0 {
		next = min(next, r.Until)
	}
	if !r.busy {
		next = min(next, r.due)
	}
	return next
}

// endsAt notes the end of the lease, on both clocks.
func (r *Renewal) endsAt(ends Instant, c *Clock) {
	r.ends, r.wall = ends, c.Wall()+int64(c.Until(ends))
}

// dueAt notes when it is to be renewed.
func (r *Renewal) dueAt(due Instant) {
	if r.Fixed {
		due = never
	}
	r.due = due
}

// Renewer renews all leases of a client in pipelines of one-key scripts. One goroutine watches
// the times.
type Renewer struct {
	link    *Link
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows; never held during I/O or a call of Lost
	held    map[*Renewal]struct{}
	next    Instant // when run looks again by itself; never while nothing is held
	changed chan struct{}
	stop    context.CancelFunc // nil until the first Add
}

const (
	never      = Instant(math.MaxInt64)
	renewBatch = 256 // the most leases in one pipeline
	driftLoss  = 100 // a lease is taken to end one part in this many early: clocks run apart
)

func newRenewer(l *Link) *Renewer {
	return &Renewer{link: l, held: map[*Renewal]struct{}{}}
}

// Deadline is when a lease of length d, asked for at sent, ends at the latest for its holder.
func Deadline(sent Instant, d time.Duration) Instant { return sent.Add(d - d/driftLoss) }

// Add keeps r's lease alive until Remove, or until it is lost.
func (n *Renewer) Add(r *Renewal) {
	r.Every = min(r.Every, r.Lease/3)
	if r.Ends == 0 {
		r.Ends = Deadline(r.Sent, r.Lease)
	}
	if r.Due == 0 {
		r.Due = r.Sent.Add(r.Every)
	}
	r.endsAt(r.Ends, n.link.Clock)
	r.dueAt(r.Due)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[r] = struct{}{}
	if n.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		n.stop, n.changed = stop, make(chan struct{}, 1)
		n.running.Go(func() { n.run(ctx) })
	}
	n.lookLocked(r)
}

// Remove ends the renewing; Lost is not called any more unless it is being called already.
func (n *Renewer) Remove(r *Renewal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.held, r)
}

func (n *Renewer) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.changed:
		case <-timer.C:
		}
		now := n.link.Clock.Now()
		due, ended, next := n.pick(now)
		for _, e := range ended {
			e.Lost(e.why)
		}
		for batch := range n.batches(ctx, due) {
			n.running.Go(func() { n.renew(ctx, batch) })
		}
		if next < never {
			timer.Reset(time.Duration(next - now))
		}
	}
}

// ended is a lease that has ended, and why.
type ended struct {
	*Renewal
	why error
}

// together is the part of its period that a lease may be renewed early, so that many are renewed in few
// pipelines, and looked through seldom.
const together = 16

// pick takes out what has ended, marks what is due, and says when to look again.
func (n *Renewer) pick(now Instant) (due []*Renewal, over []ended, next Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	anyDue := false
	for r := range n.held {
		if why := r.over(now); why != nil {
			delete(n.held, r)
			over = append(over, ended{r, why})
			continue
		}
		anyDue = anyDue || now >= r.due && !r.busy
	}
	n.next = never
	for r := range n.held {
		if anyDue && now >= r.due.Add(-r.Every/together) && !r.busy {
			r.busy = true
			due = append(due, r)
		}
		n.next = min(n.next, r.wakes())
	}
	return due, over, n.next
}

// batches sorts what is due by master, so that one that does not answer costs only its own
// leases, and by deadline.
func (n *Renewer) batches(ctx context.Context, due []*Renewal) iter.Seq[[]*Renewal] {
	for _, r := range due {
		r.master = n.link.Master(ctx, r.Call.Key)
	}
	slices.SortFunc(due, func(a, b *Renewal) int {
		return cmp.Or(cmp.Compare(a.master, b.master), cmp.Compare(a.ends, b.ends))
	})
	return func(yield func([]*Renewal) bool) {
		for len(due) > 0 {
			size := 1
			for size < min(len(due), renewBatch) && due[size].master == due[0].master {
				size++
			}
			if !yield(due[:size]) {
				return
			}
			due = due[size:]
		}
	}
}

// renew sends one pipeline. A lease whose renewal was not answered is tried again soon: one
// silence must not cost it.
func (n *Renewer) renew(ctx context.Context, batch []*Renewal) {
	calls := make([]ScriptCall, len(batch))
	budget := Budget{Left: batch[0].Lease}
	for i, r := range batch {
		calls[i] = r.Call
		budget.Left = min(budget.Left, r.Lease/3)
	}
	sent := n.link.Clock.Now()
	replies, err := Call(ctx, n.link, &budget, Urgent, func(ctx context.Context) ([]Reply, error) {
		return RunAll(ctx, n.link.Client, calls), nil
	})
	for i, r := range batch {
		reply := Reply{Err: err}
		if err == nil {
			reply = replies[i]
		}
		switch v := r.judge(reply); {
		case v.Held:
			n.renewed(r, sent)
		case v.Lost != nil:
			n.lost(r, v.Lost)
		default:
			n.again(r, r.Lease/10)
		}
	}
}

func (n *Renewer) renewed(r *Renewal, sent Instant) {
	n.mu.Lock()
	r.endsAt(Deadline(sent, r.Lease), n.link.Clock)
	n.mu.Unlock()
	n.again(r, r.Every)
}

func (n *Renewer) again(r *Renewal, in time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.busy = false
	r.dueAt(n.link.Clock.Now().Add(in))
	n.lookLocked(r)
}

func (n *Renewer) lost(r *Renewal, why error) {
	n.mu.Lock()
	_, held := n.held[r]
	delete(n.held, r)
	n.mu.Unlock()
	if held {
		r.Lost(why)
	}
}

// Extended tells the Renewer that r was renewed by other means, by a call sent at sent.
func (n *Renewer) Extended(r *Renewal, sent Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, held := n.held[r]; held {
		r.endsAt(max(r.ends, Deadline(sent, r.Lease)), n.link.Clock)
		n.lookLocked(r)
	}
}

// Hurry renews everything now: what is heard of the server lets doubt that it still knows the leases.
func (n *Renewer) Hurry() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := n.link.Clock.Now()
	for r := range n.held {
		r.dueAt(min(r.due, now))
		n.lookLocked(r)
	}
}

// lookLocked sees to it that run looks at r in time.
func (n *Renewer) lookLocked(r *Renewal) {
	if r.wakes() < n.next {
		n.poke()
	}
}

// poke makes run look at the times again.
func (n *Renewer) poke() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// close ends the renewing of everything; no Lost is called for it.
func (n *Renewer) close() {
	n.mu.Lock()
	stop := n.stop
	n.mu.Unlock()
	if stop != nil {
		stop()
		n.running.Wait()
	}
}

// Ends is when r's lease ends if it is not renewed.
func (n *Renewer) Ends(r *Renewal) Instant {
	n.mu.Lock()
	defer n.mu.Unlock()
	return r.ends
}

// Slept tells whether the wall clock has passed the end of r's lease: the monotonic clock stands still
// while the machine sleeps, Redis's does not.
func (n *Renewer) Slept(r *Renewal) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.link.Clock.Wall() >= r.wall
}
