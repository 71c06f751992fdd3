package rebuild

import (
	"hash/maphash"
	"math/bits"
	"slices"
	"unsafe"
)

// normalize gives worlds that differ only in the names of tokens, in how far starts lie apart, and
// in the order of what has none, one form.
func (w *world) normalize() {
	slices.SortFunc(w.commands[:], compareCommands)
	var n names
	w.visit(n.token, n.see)
	w.visit(func(*u8) {}, n.start)
}

// names are the new names of tokens and starts. Starts are small: a bit each tells which there are.
type names struct {
	tokens [64]u8
	next   u8
	seen   uint64
}

func (n *names) token(t *u8) {
	if *t == 0 {
		return
	}
	if n.tokens[*t] == 0 {
		n.next++
		n.tokens[*t] = n.next
	}
	*t = n.tokens[*t]
}

func (n *names) see(s *u8) {
	if *s != forEver {
		n.seen |= 1 << *s
	}
}

// start makes of a start its rank.
func (n *names) start(s *u8) {
	if *s != 0 && *s != forEver {
		*s = u8(bits.OnesCount64(n.seen & (1<<(*s+1) - 2)))
	}
}

// visit calls the two functions for every token and every start.
func (w *world) visit(token, start func(*u8)) {
	w.redis.visit(token, start)
	for i := range w.hosts {
		w.hosts[i].visit(token, start)
	}
	for i := range w.commands {
		token(&w.commands[i].token)
		start(&w.commands[i].start)
		start(&w.commands[i].bar)
	}
}

func (c *cell) visit(token, start func(*u8)) {
	if c.what == 0 {
		return
	}
	token(&c.writer)
	token(&c.token)
	start(&c.version)
	start(&c.start)
}

func (h *host) visit(token, start func(*u8)) {
	token(&h.copy.writer)
	start(&h.copy.version)
	for i := range h.flying {
		h.flying[i].visit(token, start)
	}
	for i := range h.jobs {
		j := &h.jobs[i]
		token(&j.token)
		start(&j.start)
		j.answer.cell.visit(token, start)
	}
	token(&h.change.token)
	start(&h.change.start)
	h.change.answer.cell.visit(token, start)
	for i := range h.unsure {
		token(&h.unsure[i].token)
		start(&h.unsure[i].except)
	}
}

func (f *reading) visit(token, start func(*u8)) {
	if f.phase == 0 {
		return
	}
	token(&f.held.writer)
	start(&f.held.version)
	token(&f.token)
	start(&f.bar)
	token(&f.holder)
	start(&f.since)
	f.answer.cell.visit(token, start)
}

// newest is the greatest start that anybody remembers.
func (w *world) newest() (s u8) {
	w.visit(func(*u8) {}, func(x *u8) {
		if *x != forEver {
			s = max(s, *x)
		}
	})
	return s
}

// unused is a token that nobody has.
func (w *world) unused() (t u8) {
	w.visit(func(x *u8) { t = max(t, *x) }, func(*u8) {})
	return t + 1
}

// order is of nodes, in which a world may be looked at.
type order [maxHosts]u8

var orders = map[int][]order{
	1: {{0, 1, 2}},
	2: {{0, 1, 2}, {1, 0, 2}},
	3: {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}},
}

// in is the world with its nodes in another order: node i becomes node o[i].
func (w *world) in(o order) world {
	v := *w
	for i, at := range o {
		v.hosts[at] = w.hosts[i]
	}
	for i := range v.commands {
		if v.commands[i].kind != 0 {
			v.commands[i].host = o[v.commands[i].host]
		}
	}
	return v
}

var seed = maphash.MakeSeed()

// key is the same for worlds that differ in the order of their nodes only: nodes are alike.
func (w *world) key(hosts int) uint64 {
	least := ^uint64(0)
	for _, o := range orders[hosts] {
		v := w.in(o)
		v.normalize()
		least = min(least, maphash.Bytes(seed, v.bytes()))
	}
	return least
}

// bytes are the world's own: all its fields are bytes, so it has no gaps.
func (w *world) bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(w)), unsafe.Sizeof(*w)) }
