package link

import (
	"math"
	"sync/atomic"
	"time"
)

// Trust says what a node may believe of what it holds, given the changes it is told of. It is
// read on every hit: no lock, no allocation. Nothing is trusted by the zero value. All methods
// are safe for concurrent use.
type Trust struct {
	floor atomic.Int64 // Instant: changes before it may have been missed
	until atomic.Int64 // Instant: changes are being heard up to it
}

const (
	blockTime = 500 * time.Millisecond // how long the server is asked to wait for a change
	slack     = 300 * time.Millisecond // how late an answer may be

	// trustTime is how long what is proven holds: a cut or a frozen connection is noticed by then.
	trustTime = blockTime + slack
)

// Always returns a Trust that hears everything: for a node that nobody else changes anything for.
func Always() *Trust { return Between(0, math.MaxInt64) }

// Between returns a Trust in what was asked for from floor on, that hears until the other instant.
func Between(floor, until Instant) *Trust {
	t := &Trust{}
	t.floor.Store(int64(floor))
	t.until.Store(int64(until))
	return t
}

// Trusts tells whether what was asked for at since can still be believed at now: every change
// made after since and more than 0.8 s before now has been delivered.
func (t *Trust) Trusts(since, now Instant) bool {
	// until comes first: where it has been extended after a gap, the floor was raised before.
	return now < Instant(t.until.Load()) && since >= Instant(t.floor.Load())
}

// Floor is the instant of the last gap, or of the start: what was asked for before it is not
// trusted any more. It never falls.
func (t *Trust) Floor() Instant { return Instant(t.floor.Load()) }

// Hears tells whether changes are being heard.
func (t *Trust) Hears(now Instant) bool { return now < Instant(t.until.Load()) }

// raise distrusts what was asked for before i.
func (t *Trust) raise(i Instant) { lift(&t.floor, int64(i)) }

// prove notes that all changes made before i have been delivered, or lie before the floor.
func (t *Trust) prove(i Instant) { lift(&t.until, int64(i.Add(trustTime))) }

// forget stops trusting: nobody listens any more.
func (t *Trust) forget() { t.until.Store(0) }

func lift(a *atomic.Int64, to int64) {
	for {
		old := a.Load()
		if old >= to || a.CompareAndSwap(old, to) {
			return
		}
	}
}
