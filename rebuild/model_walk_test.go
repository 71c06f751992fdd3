package rebuild

import (
	"fmt"
	"slices"
	"sync"
)

// journey is breadth-first: the first broken promise has the shortest trace.
type journey struct {
	scope  *scope
	shards [64]shard
	states int
	depth  int
	bad    *found
	waits  *waits // nil: it is not asked whether every wait ends
}

// shard is a part of the worlds seen: of each, by its key, the key of the one before it.
type shard struct {
	mu   sync.Mutex
	seen map[uint64]uint64
}

type found struct {
	promise string
	before  uint64 // the key of the last world that kept it
	step    string // that broke it
}

// reached is a world and its key.
type reached struct {
	world
	key uint64
}

func newJourney(c *scope) *journey {
	k := &journey{scope: c}
	for i := range k.shards {
		k.shards[i].seen = map[uint64]uint64{}
	}
	if c.waits {
		k.waits = &waits{}
	}
	return k
}

func (k *journey) at(key uint64) *shard { return &k.shards[key%uint64(len(k.shards))] }

// add is false for a world that was seen already.
func (k *journey) add(key, before uint64) bool {
	sh := k.at(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if _, ok := sh.seen[key]; ok {
		return false
	}
	sh.seen[key] = before
	return true
}

func (c *scope) first() world {
	w := world{left: c.most}
	if c.warm {
		w.redis = cell{what: 1, kind: u8(KindValue), version: 1, writer: 1, fresh: atFresh, stale: atStale, ifError: atIfError}
		for n := range c.nodes {
			w.hosts[n].copy = localCopy{has: 1, version: 1, writer: 1, fresh: atFresh, stale: atStale, ifError: atIfError}
		}
	}
	return w
}

// run walks all that can be reached, or until a promise is broken, or so many states are seen; 0 is no bound.
func (k *journey) run(workers, most int) {
	start := k.scope.first()
	key := start.key(k.scope.nodes)
	k.add(key, 0)
	level := []reached{{start, key}}
	for ; len(level) > 0 && k.bad == nil && (most == 0 || k.states < most); k.depth++ {
		k.states += len(level)
		level = k.level(level, workers)
	}
	if k.waits != nil && k.bad == nil && len(level) == 0 {
		if key, ok := k.waits.endless(); ok {
			k.bad = &found{promise: "a caller waits for ever", before: key}
		}
	}
}

// level takes every step out of each world.
func (k *journey) level(worlds []reached, workers int) (next []reached) {
	parts := make([]part, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { parts[i].walk(k, worlds, i, workers) })
	}
	wg.Wait()
	for i := range parts {
		next = append(next, parts[i].next...)
		if parts[i].bad != nil {
			k.bad = parts[i].bad
		}
		if k.waits != nil {
			k.waits.merge(&parts[i].waits)
		}
	}
	return next
}

// part is what one worker finds at one level.
type part struct {
	next  []reached
	bad   *found
	waits waits
}

func (p *part) walk(k *journey, worlds []reached, first, stride int) {
	var from *reached
	x := walker{scope: k.scope}
	x.emit = func(s *step) {
		if s.bad != "" {
			if p.bad == nil {
				p.bad = &found{s.bad, from.key, s.String()}
			}
			return
		}
		key := s.key(k.scope.nodes)
		if k.add(key, from.key) {
			p.next = append(p.next, reached{s.world, key})
		}
		if k.waits != nil && !s.chance {
			p.waits.steps = append(p.waits.steps, [2]uint64{key, from.key})
		}
	}
	for at := first; at < len(worlds) && p.bad == nil; at += stride {
		from = &worlds[at]
		x.from = &from.world
		if k.waits != nil {
			p.waits.note(from)
		}
		x.steps()
	}
}

// trace tells how the promise was broken, from the start.
func (k *journey) trace() []string {
	var keys []uint64
	for key := k.bad.before; key != 0; key = k.at(key).seen[key] {
		keys = append(keys, key)
	}
	slices.Reverse(keys)
	var lines []string
	at := k.scope.first()
	for _, key := range keys[1:] {
		line, next := k.towards(&at, key)
		lines = append(lines, line)
		at = next
	}
	if k.bad.step != "" {
		lines = append(lines, k.bad.step)
	}
	for i := range lines {
		lines[i] = fmt.Sprintf("%4d  %s", i+1, lines[i])
	}
	return append(lines, "      broken: "+k.bad.promise)
}

// towards is the step that leads from a world to the one with this key.
func (k *journey) towards(from *world, key uint64) (line string, next world) {
	x := walker{scope: k.scope, from: from}
	x.emit = func(s *step) {
		if line == "" && s.bad == "" && s.key(k.scope.nodes) == key {
			line, next = s.String(), s.world
		}
	}
	x.steps()
	return line, next
}
