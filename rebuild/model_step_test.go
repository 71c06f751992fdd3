package rebuild

import (
	"fmt"
	"strings"
)

// scope is of a walk: what may happen, how often, and which rules are taken out.
type scope struct {
	nodes    int
	most     budgets
	kinds    []u8 // of changes
	messages bool // nodes hear of each other's changes
	early    bool // fresh values are refreshed
	rows     bool // sets carry row versions, and come in any order
	holdDown bool // deletes have a hold-down, and replicas lag until it ends
	warm     bool // the value is in Redis and on every node at first
	waits    bool // it is asked whether every wait ends
	without  guards
	rules    rules // of the nodes, that are taken out
}

// step is a world in which something happens.
type step struct {
	*scope
	world
	bad  string // the promise that is broken
	verb string
	on   [3]u8

	chance bool // it may also not happen: see may
}

func (s *step) breaks(promise string) {
	if s.bad == "" {
		s.bad = promise
	}
}

func (s *step) off(r rules) bool { return s.rules&r != 0 }

// everywhere is in place of a node, of what happens on none.
const everywhere = forEver

// String names the node and what happens there; the verb has room for what else is told.
func (s *step) String() string {
	rest := []any{s.on[1], s.on[2]}
	text := fmt.Sprintf(s.verb, rest[:strings.Count(s.verb, "%d")]...)
	if s.on[0] == everywhere {
		return text
	}
	return string('A'+s.on[0]) + ": " + text
}

// walker makes the steps that lead out of a world.
type walker struct {
	*scope
	from *world
	emit func(*step)
	s    step
}

// may is does, for what users, loaders and the network may or may not do. Nobody can wait for it.
func (x *walker) may(verb string, f func(*step) bool, on ...u8) {
	x.s.chance = true
	x.does(verb, f, on...)
	x.s.chance = false
}

// does takes a step, if f finds it possible. What follows from every step follows then.
func (x *walker) does(verb string, f func(*step) bool, on ...u8) {
	s := &x.s
	s.scope, s.world, s.bad, s.verb, s.on = x.scope, *x.from, "", verb, [3]u8{everywhere}
	copy(s.on[:], on)
	if f(s) {
		s.follow()
		s.check()
		x.emit(s)
	}
}

// steps are all that may happen next.
func (x *walker) steps() {
	for n := range u8(x.nodes) {
		h := &x.from.hosts[n]
		x.readings(n, h)
		x.loads(n, h)
		x.changes(n, h)
		x.givesBack(n, h)
		x.hearing(n, h)
		x.troubles(n, h)
	}
	x.network()
	x.time()
}
