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
)

// Renewal keeps one lease alive. Its fields are written before Add and then belong to the
// Renewer.
type Renewal struct {
	Call  ScriptCall    // the script that renews; answers "held" or "lost"
	Sent  Instant       // when the lease was asked for
	Lease time.Duration // its length, which a renewal begins anew
	Every time.Duration // how often it is renewed; a third of Lease at the most
	Lost  func(error)   // called once, from a goroutine of the Renewer, when it has ended

	ends   Instant // unless it is renewed
	due    Instant // for renewal
	busy   bool    // a renewal is on its way
	master string  // of the key
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
	r.ends, r.due = Deadline(r.Sent, r.Lease), r.Sent.Add(r.Every)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held[r] = struct{}{}
	if n.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		n.stop, n.changed = stop, make(chan struct{}, 1)
		n.running.Go(func() { n.run(ctx) })
	}
	if min(r.due, r.ends) < n.next {
		n.poke()
	}
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
		for _, r := range ended {
			r.Lost(ErrExpired)
		}
		for batch := range n.batches(ctx, due) {
			n.running.Go(func() { n.renew(ctx, batch) })
		}
		if next < never {
			timer.Reset(time.Duration(next - now))
		}
	}
}

// pick takes out what has ended, marks what is due, and says when to look again.
func (n *Renewer) pick(now Instant) (due, ended []*Renewal, next Instant) {
	n.mu.Lock()
	defer n.mu.Unlock()
	next = never
	for r := range n.held {
		switch {
		case now >= r.ends:
			delete(n.held, r)
			ended = append(ended, r)
			continue
		case now >= r.due && !r.busy:
			r.busy = true
			due = append(due, r)
		case !r.busy:
			next = min(next, r.due)
		}
		next = min(next, r.ends)
	}
	n.next = next
	return due, ended, next
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
		switch {
		case err != nil || replies[i].Err != nil || len(replies[i].Values) == 0:
			n.again(r, r.Lease/10)
		case replies[i].Values[0] == "held":
			n.renewed(r, sent)
		default:
			n.lost(r)
		}
	}
	n.poke()
}

func (n *Renewer) renewed(r *Renewal, sent Instant) {
	n.mu.Lock()
	r.ends = Deadline(sent, r.Lease)
	n.mu.Unlock()
	n.again(r, r.Every)
}

func (n *Renewer) again(r *Renewal, in time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.busy, r.due = false, n.link.Clock.Now().Add(in)
}

func (n *Renewer) lost(r *Renewal) {
	n.mu.Lock()
	_, held := n.held[r]
	delete(n.held, r)
	n.mu.Unlock()
	if held {
		r.Lost(ErrTaken)
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
