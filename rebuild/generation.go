package rebuild

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// generation is what this node knows of a number in Redis that ends, by its change, what was loaded
// under it: all entries of the namespace, or those with a tag. The hard one ends them; the soft one
// ends their freshness. Copies point to it, so that a change ends them all at once.
type generation struct {
	redis string // its key
	tag   string // "" for the namespace

	// These are read by hits, without the mutex. 0: not known yet; below: changed, but not known to what.
	hard, soft atomic.Int64
	changed    atomic.Int64 // a link.Instant: when it last changed, at the latest

	mu       sync.Mutex   // guards writing, and what follows
	asked    link.Instant // what is known was asked for then
	came     link.Instant // and the answer came then
	at       int64        // the server's time, µs, when it was so
	poisoned link.Instant // what was asked for no later says nothing
	gone     bool         // no longer in the table, where changes are heard: nothing carries it any more
	softer   []softening  // the last ones
}

// softening is one end of freshness.
type softening struct {
	from int64
	at   link.Instant
}

// mostSoftenings bounds those that are remembered.
const mostSoftenings = 8

// never is when what has not changed since it was made has changed.
const never = link.Instant(math.MinInt64)

func newGeneration(redis, tag string, changed link.Instant) *generation {
	g := &generation{redis: redis, tag: tag, came: never, poisoned: never}
	g.changed.Store(int64(changed))
	return g
}

// poisons are numbers that no generation in Redis has.
var poisons atomic.Int64

// learn takes over what Redis answered. changed tells of news: of a poisoned one it was known.
func (g *generation) learn(a generationReply) (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	// Of two questions that overlap, the server's time tells which state is the earlier one; else it is not asked: it may have stepped back.
	earlier := a.asked <= g.came && a.at < g.at
	if g.gone || earlier || a.asked <= g.poisoned {
		return false
	}
	hard := g.hard.Swap(a.hard)
	soft := g.softenLocked(a.soft, a.changed)
	g.asked, g.came, g.at = a.asked, a.came, a.at
	if a.changed != never && (hard != a.hard || soft != a.soft) { // one that was lost says nothing of when it changed before
		g.changed.Store(int64(a.changed))
	}
	return hard > 0 && soft > 0 && (hard != a.hard || soft != a.soft)
}

// poison makes it differ from every mark there is, until Redis is asked again: it has changed, and a number that a message
// tells may be anybody's.
func (g *generation) poison(soft bool, now link.Instant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changeLocked(soft, poisons.Add(-1), now)
	g.poisoned = now
}

// evict poisons it for good.
func (g *generation) evict(now link.Instant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.changeLocked(false, poisons.Add(-1), now)
	g.gone = true
}

func (g *generation) changeLocked(soft bool, number int64, now link.Instant) {
	if soft {
		g.softenLocked(number, now)
	} else {
		g.hard.Store(number)
	}
	g.changed.Store(int64(now))
}

func (g *generation) softenLocked(number int64, at link.Instant) (before int64) {
	before = g.soft.Swap(number)
	if before != number && before != 0 {
		if len(g.softer) == mostSoftenings {
			g.softer = g.softer[1:]
		}
		g.softer = append(g.softer, softening{before, at})
	}
	return before
}

// softened is when the freshness of what carries this soft number was ended: by the first change after it, or where that
// is not remembered by the last. ok is false if it has not been.
func (g *generation) softened(soft int64) (at link.Instant, ok bool) {
	if g.soft.Load() == soft {
		return 0, false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range slices.Backward(g.softer) { // backward: a change that was feared may not have happened
		if s.from == soft {
			return s.at, true
		}
	}
	return link.Instant(g.changed.Load()), true
}

// known tells whether Redis need not be asked for g at now. It is asked again after a tenth of the time for which a
// copy is believed even if every message is heard: one may not have been sent, and a generation in use must not run out.
func (n *Node) known(g *generation, now link.Instant) bool {
	if n.server.link == nil {
		return true
	}
	if g.hard.Load() <= 0 || g.soft.Load() <= 0 {
		return false
	}
	asked := g.askedAt()
	return now < asked.Add(n.policy.LocalTTL/10) && n.trusts(asked, asked.Add(unheardFor/10), now)
}

func (g *generation) askedAt() link.Instant {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.asked
}

// generationReply is what the script answered.
type generationReply struct {
	at         int64 // the server's time, µs
	hard, soft int64
	asked      link.Instant
	came       link.Instant
	changed    link.Instant
}

// readGeneration reads the answer to a question of asked that came at now.
func readGeneration(values []any, asked, now link.Instant) (r generationReply, err error) {
	var numbers [4]int64
	for i := range numbers {
		var ok bool
		if i < len(values) {
			numbers[i], ok = values[i].(int64)
		}
		if !ok {
			return r, fmt.Errorf("a generation is %v", values)
		}
	}
	server, hard, soft, born := numbers[0], numbers[1], numbers[2], numbers[3] == 1
	r = generationReply{at: server, hard: hard, soft: soft, asked: asked, came: now, changed: never}
	if !born {
		ago := max(server-max(hard, soft), 0) // else the server's clock has stepped back
		r.changed = now.Add(-time.Duration(ago) * time.Microsecond)
	}
	return r, nil
}
