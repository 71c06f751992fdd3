package rebuild

import (
	"math/rand/v2"
	"testing"
)

// couple is a host and the production type that it stands for.
type couple struct {
	step
	t       *testing.T
	real    *running
	reads   [maxFlying]*ticket
	tickets [maxJobs]*ticket
	loads   [maxJobs]*load
	set     *ticket
}

func TestAHostKeepsAndForgetsAsRunningDoes(t *testing.T) {
	rounds := 400
	for i := range rounds {
		c := &couple{t: t, real: newRunning(), step: step{scope: &scope{nodes: 1}}}
		r := rand.New(rand.NewPCG(uint64(i), 0))
		for range 100 {
			c.move(r.IntN(10), u8(r.IntN(maxJobs)), r.IntN(4) == 0)
			c.same()
		}
	}
}

// move does one thing to both.
func (c *couple) move(what int, k u8, refresh bool) {
	switch what {
	case 0, 1:
		c.read(k, refresh)
	case 2, 3:
		c.load(k, refresh)
	case 4:
		c.setting()
	case 5:
		c.real.forget("k", func() {})
		c.forget(0)
	case 6:
		c.endRead(k)
	default:
		c.endLoad(k)
	}
}

func (c *couple) read(i u8, refresh bool) {
	f := &c.hosts[0].flying[i]
	if f.phase != 0 {
		kept := c.real.keep(c.reads[i], func() {})
		equal(c.t, "keep by a read", c.hosts[0].keepsRead(f), kept)
		return
	}
	c.reads[i] = c.real.begin("k", refresh)
	var turn u8
	if refresh {
		turn = c.hosts[0].nextTurn()
	}
	*f = reading{phase: flyGet, turn: turn}
}

func (c *couple) load(k u8, refresh bool) {
	h := &c.hosts[0]
	if h.jobs[k].phase != 0 {
		kept := c.real.keep(c.tickets[k], func() {})
		equal(c.t, "keep by a load", h.keepsLoad(h.jobs[k].void, h.jobs[k].turn), kept)
		return
	}
	l := &load{key: Key{Text: "k"}, refresh: refresh}
	c.loads[k] = l
	joins := c.real.lead(l) == l
	equal(c.t, "leads", h.lead(k, refresh) == k+1, joins)
	if !joins {
		c.loads[k] = nil
		return
	}
	c.tickets[k] = c.real.begin("k", true)
	h.jobs[k] = job{phase: jobRuns, turn: h.nextTurn()}
}

func (c *couple) setting() {
	ch := &c.hosts[0].change
	if ch.turn == 0 {
		c.set, ch.turn = c.real.begin("k", true), c.hosts[0].nextTurn()
		return
	}
	equal(c.t, "keep by a set", c.hosts[0].keepsLoad(ch.void, ch.turn), c.real.keep(c.set, func() {}))
	c.real.end(c.set)
	c.set, *ch = nil, change{}
}

func (c *couple) endRead(i u8) {
	if c.reads[i] != nil {
		c.real.end(c.reads[i])
		c.reads[i], c.hosts[0].flying[i] = nil, reading{}
	}
}

func (c *couple) endLoad(k u8) {
	if l := c.loads[k]; l != nil {
		c.real.end(c.tickets[k])
		c.real.leave(l)
		c.hosts[0].leave(k)
		c.hosts[0].jobs[k] = job{}
		c.loads[k], c.tickets[k] = nil, nil
	}
}

func (c *couple) same() {
	c.t.Helper()
	h := &c.hosts[0]
	for i, t := range c.reads {
		if t != nil {
			equal(c.t, "a read is void", h.flying[i].void != 0, t.void)
		}
	}
	for k, t := range c.tickets {
		if t != nil {
			equal(c.t, "a load is void", h.jobs[k].void != 0, t.void)
		}
	}
	if c.set != nil {
		equal(c.t, "a set is void", h.change.void != 0, c.set.void)
	}
	var joined *load
	if h.joined != 0 {
		joined = c.loads[h.joined-1]
	}
	equal(c.t, "newcomers join", joined, c.real.join("k"))
}
