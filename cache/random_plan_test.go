package cache_test

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/levee-cache/levee/cache"
)

// randomPlan is all that a seed decides. What it does not: which of two goroutines that wake
// at one instant goes first, and the pauses that the cache itself draws.
type randomPlan struct {
	seed        uint64
	o           cache.Options
	faulty      bool
	rows        bool          // Set is given row versions
	tags        bool          // values carry their key, and "all"
	readTimeout time.Duration // of the clients: then they try again
	quantum     time.Duration // of times: a coarse one makes much happen at one instant
	steps       []randomStep
}

// randomStep is something that somebody does at an instant.
type randomStep struct {
	at   time.Duration
	deed deed
	node int
	key  int
	span time.Duration // of a call: until its caller leaves; of a fault: its length
	pick int           // chooses among faults of commands
}

type deed int

const (
	doGet deed = iota
	doGetEntry
	doGetFresh
	doPeek
	doRefresh
	doSet
	doDelete
	doDeleteAll
	doClear
	doEndTag
	doExpire
	doWrite // to the database, and tell nobody
	doDel   // as other programs do
	doFlush
	doRule // a fault of some commands
	doFreeze
	doCut
	doRefuse
	doRestart // of Redis
	doKill
	doClose
)

// deeds are their names, and how often each is drawn among the calls and among the faults.
var deeds = [...]struct {
	name          string
	calls, faults int
}{
	doGet:       {"get", 30, 0},
	doGetEntry:  {"getentry", 20, 0},
	doGetFresh:  {"getfresh", 8, 0},
	doPeek:      {"peek", 6, 0},
	doRefresh:   {"refresh", 7, 0},
	doSet:       {"set", 9, 0},
	doDelete:    {"delete", 14, 0},
	doDeleteAll: {"deleteall", 3, 0},
	doClear:     {"clear", 3, 0},
	doEndTag:    {"endtag", 6, 0},
	doExpire:    {"expire", 8, 0},
	doWrite:     {"write", 4, 0},
	doDel:       {"del", 4, 0},
	doFlush:     {"flush", 1, 0},
	doRule:      {"rule", 0, 24},
	doFreeze:    {"freeze", 0, 4},
	doCut:       {"cut", 0, 4},
	doRefuse:    {"refuse", 0, 2},
	doRestart:   {"restart", 0, 1},
	doKill:      {"kill", 0, 2},
	doClose:     {"close", 0, 2},
}

func (d deed) String() string { return deeds[d].name }

func drawDeed(r *rand.Rand, faults bool) deed {
	var all []deed
	for d, how := range deeds {
		often := how.calls
		if faults {
			often = how.faults
		}
		all = append(all, slices.Repeat([]deed{deed(d)}, often)...)
	}
	return draw(r, all...)
}

func draw[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func upTo(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

func planOf(seed uint64) *randomPlan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := &randomPlan{
		seed:        seed,
		faulty:      r.IntN(3) > 0,
		rows:        r.IntN(3) == 0,
		readTimeout: draw(r, 40*time.Millisecond, 3*time.Second),
		quantum:     draw(r, time.Microsecond, time.Millisecond, 5*time.Millisecond),
		o: cache.Options{
			TTL:                  draw(r, 300*time.Millisecond, time.Second),
			TTLJitter:            cache.Off,
			EarlyRefresh:         draw[float64](r, cache.Off, 0, 5),
			WaitFresh:            draw[time.Duration](r, 0, 0, 50*time.Millisecond),
			StaleWhileRevalidate: draw[time.Duration](r, cache.Off, 300*time.Millisecond, time.Second),
			StaleIfError:         draw(r, 0, 2*time.Second),
			NegativeTTL:          300 * time.Millisecond,
			ErrorBackoff:         200 * time.Millisecond,
			LoadTimeout:          2 * time.Second,
			Lease:                draw(r, 300*time.Millisecond, 600*time.Millisecond),
			LocalTTL:             draw(r, 0, 200*time.Millisecond),
			RedisTimeout:         draw(r, 100*time.Millisecond, 200*time.Millisecond),
			MaxConcurrentLoads:   draw(r, 0, 0, 2),
			LocalMaxBytes:        draw[int64](r, 1<<20, 1<<20, cache.Off),
		},
	}
	p.tags = r.IntN(3) > 0
	p.drawSteps(r)
	return p
}

// horizon is how long a run has something done to it.
const horizon = 3 * time.Second

// drawSteps draws calls in bursts around one key, since it is what happens together that goes
// wrong, and faults that begin just before them.
func (p *randomPlan) drawSteps(r *rand.Rand) {
	for range 6 + r.IntN(5) {
		at, key, width := upTo(r, horizon), r.IntN(3), draw(r, 10*time.Millisecond, 60*time.Millisecond, 400*time.Millisecond)
		if p.faulty && r.IntN(3) > 0 {
			p.add(r, at, drawDeed(r, true), key)
		}
		for range 2 + r.IntN(8) {
			p.add(r, at+upTo(r, width), drawDeed(r, false), key)
		}
	}
	slices.SortStableFunc(p.steps, func(a, b randomStep) int { return int(a.at - b.at) })
}

func (p *randomPlan) add(r *rand.Rand, at time.Duration, d deed, key int) {
	s := randomStep{at: at.Truncate(p.quantum), deed: d, node: r.IntN(3), key: key, pick: r.IntN(1 << 20)}
	switch {
	case d >= doFreeze:
		s.at += 333 // ns: nothing else happens just then, least of all the opening of a connection
		s.span = draw(r, 10*time.Millisecond, 150*time.Millisecond, 1200*time.Millisecond)
	case d == doRule:
		s.span = upTo(r, draw(r, 20*time.Millisecond, 100*time.Millisecond, time.Second))
	case r.IntN(6) == 0:
		s.span = 1 + upTo(r, draw(r, 10*time.Millisecond, time.Second))
	}
	p.steps = append(p.steps, s)
}

// latency is one way's.
func (p *randomPlan) latency(r *rand.Rand) time.Duration {
	return upTo(r, 4*time.Millisecond+1).Round(p.quantum)
}
