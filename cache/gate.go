package cache

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
)

// gate counts who is inside a read of ristretto, so that it is closed only when nobody is: a
// read that meets its Close panics. Counters of one cache line each keep cores from
// fighting over it.
type gate struct {
	shut   atomic.Bool
	inside [gateStripes]struct {
		atomic.Int64
		_ [56]byte
	}
}

const gateStripes = 16

// enter returns false once the gate is shut; otherwise leave must follow.
func (g *gate) enter() (stripe *atomic.Int64, ok bool) {
	stripe = &g.inside[rand.Uint32()%gateStripes].Int64
	stripe.Add(1)
	if g.shut.Load() {
		stripe.Add(-1)
		return nil, false
	}
	return stripe, true
}

// close shuts the gate and waits until nobody is inside. Reads are short and never blocked.
func (g *gate) close() {
	g.shut.Store(true)
	for i := range g.inside {
		for g.inside[i].Load() != 0 {
			runtime.Gosched()
		}
	}
}
