package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// fleet is a number of processes that run lockers.
type fleet struct {
	stage *stage
	nodes []*redistest.Proc
	each  int // lockers in each
}

func (s *stage) fleet(nodes, each int) *fleet {
	f := &fleet{stage: s, each: each}
	for range nodes {
		f.nodes = append(f.nodes, redistest.Process(s, "node"))
	}
	return f
}

// open makes all of them lockers of p.
func (f *fleet) open(p peer, addr string, lease time.Duration) {
	for i := range f.nodes {
		f.send(i, order{Do: "open", Peer: p.name, Addr: addr, Lease: lease, Lockers: f.each, Name: fmt.Sprint(i)})
	}
	for i := range f.nodes {
		f.answer(i, 30*time.Second)
	}
}

func (f *fleet) send(i int, o order) {
	text, err := json.Marshal(o)
	f.stage.must(err)
	f.nodes[i].Send(string(text))
}

func (f *fleet) answer(i int, within time.Duration) (r result) {
	f.stage.must(json.Unmarshal([]byte(f.nodes[i].Line(within)), &r))
	if r.Error != "" {
		f.stage.Fatalf("node %d: %s", i, r.Error)
	}
	return r
}

func (f *fleet) ask(i int, o order, within time.Duration) result {
	f.send(i, o)
	return f.answer(i, within)
}

// race is what came of all lockers' taking one lock in turn.
type race struct {
	turns    []turn // in the order of time
	took     time.Duration
	lockers  int
	commands int64 // sent meanwhile
}

// rush is the time in which all come to wait, and inboxes open; it is not counted.
func (s *stage) rush() time.Duration { return pick(s, 600*time.Millisecond, time.Second) }

// compete lets all of them compete for a lock of this name, and counts what goes through the proxy, if there is one.
func (f *fleet) compete(name string, hold, d time.Duration, p *redistest.Proxy) (r race) {
	commands := func() int64 {
		if p == nil {
			return 0
		}
		return p.Stats().Commands
	}
	rush := f.stage.rush()
	for i := range f.nodes {
		f.send(i, order{Do: "compete", Name: name, Hold: hold, For: rush + d + rush/4})
	}
	time.Sleep(rush)
	before, from := commands(), time.Now()
	time.Sleep(d)
	r.commands, r.took = commands()-before, time.Since(from)
	r.lockers = len(f.nodes) * f.each
	until := from.Add(r.took).UnixNano()
	for i := range f.nodes {
		for _, t := range f.answer(i, d+30*time.Second).Turns {
			if t.Got >= from.UnixNano() && t.Got < until {
				t.Who += i * f.each
				r.turns = append(r.turns, t)
			}
		}
	}
	slices.SortFunc(r.turns, func(a, b turn) int { return cmp.Compare(a.Got, b.Got) })
	return r
}

// handoffs are the times from one's giving the lock back to the next one's having it.
func (r race) handoffs() (all []time.Duration) {
	for i, t := range r.turns[1:] {
		all = append(all, time.Duration(t.Got-r.turns[i].Freed))
	}
	return all
}

// perTurn is how many commands one acquisition came to.
func (r race) perTurn() float64 { return float64(r.commands) / float64(len(r.turns)) }

func (r race) perSecond() float64 { return float64(len(r.turns)) / r.took.Seconds() }

// heartbeats are those that were due while somebody waited: the first after four fifths of a second.
func (r race) heartbeats() (n int64) {
	for _, t := range r.turns {
		n += (t.Got - t.Asked) / int64(800*time.Millisecond)
	}
	return n
}

// spread is how many turns the one had who had most, and who had least.
func (r race) spread() (most, least int) {
	count := make([]int, r.lockers)
	for _, t := range r.turns {
		count[t.Who]++
	}
	return slices.Max(count), slices.Min(count)
}
