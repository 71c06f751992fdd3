package linear

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// fleet is the nodes, seen from the test.
type fleet struct {
	t      *testing.T
	told   settings      // what all nodes are told
	faults []fault       // what may happen to them
	calm   time.Duration // for how long who was cut off is not cut off again
	rng    *rand.Rand
	nodes  []*place
	alone  []span
	stalls []span
	seen   map[string]int // faults by name

	history []op
}

// place is where a node runs, and is started again.
type place struct {
	id       int
	proxy    *proxy
	proc     *redistest.Proc
	journals []*reading
	ops      [][]op // by process

	undo      func() // what a fault leaves to be done, nil if none
	undoAt    time.Duration
	calmUntil time.Duration // not cut off again before it
}

func startFleet(t *testing.T, seed uint64, mutant string, faults []fault) *fleet {
	redis := redistest.RealOnly(t)
	f := &fleet{t: t, faults: faults, rng: rand.New(rand.NewPCG(seed, nodes)), seen: map[string]int{}}
	f.told = settings{Seed: seed, Database: newDatabase(t), Mutant: mutant}
	for id := range nodes {
		p := &place{id: id, proxy: newProxy(t, redis.Addr())}
		f.nodes = append(f.nodes, p)
		f.start(p)
	}
	for _, p := range f.nodes {
		p.proc.Line(time.Minute)
	}
	return f
}

// start starts a process, with a journal of its own.
func (f *fleet) start(p *place) {
	f.t.Helper()
	told := f.told
	told.Node, told.Redis = p.id, p.proxy.ln.Addr().String()
	told.Seed += uint64(len(p.journals)) << 32
	told.Journal = filepath.Join(f.t.TempDir(), fmt.Sprintf("node%d-%d", p.id, len(p.journals)))
	text, err := json.Marshal(told)
	must(f.t, err)
	p.proc = redistest.Process(f.t, "node", settingsVar+"="+string(text))
	p.journals = append(p.journals, &reading{name: told.Journal})
	p.ops = append(p.ops, nil)
}

// collect reads what the nodes have done since.
func (f *fleet) collect() {
	f.t.Helper()
	f.history, f.stalls = nil, nil
	for _, p := range f.nodes {
		for i, j := range p.journals {
			ops, err := j.more()
			must(f.t, err)
			p.ops[i] = append(p.ops[i], ops...)
			f.history = append(f.history, p.ops[i]...)
			f.stalls = append(f.stalls, stalls(p.ops[i])...)
		}
	}
}

func (f *fleet) check() verdict {
	f.collect()
	r := rules{heard: heard, windows: windows, late: late, alone: append(f.stalls, f.alone...)}
	for _, p := range f.nodes { // a fault that has not ended yet is no excuse for what comes after it
		if p.undo != nil {
			r.alone = append(r.alone, span{p.id, 0, now()})
		}
	}
	return r.check(f.history)
}

// heal undoes the faults that are under way.
func (f *fleet) heal() {
	for _, p := range f.nodes {
		f.end(p)
	}
}

// report logs what the test has seen.
func (f *fleet) report(v verdict, took time.Duration) {
	processes, unforced := 0, 0
	for _, p := range f.nodes {
		processes += len(p.journals)
	}
	cut := spansOf(f.alone)
	for _, s := range f.stalls {
		if !cut[s.node].meet(op{Start: s.from, End: s.to}) {
			unforced++
		}
	}
	f.t.Logf("%d operations in %v, of %d processes: %d reads, %d of them held against what others wrote; %d writes, %d of them unconfirmed",
		len(f.history), took.Round(time.Millisecond), processes, v.reads, v.strict, v.writes, v.unconfirmed)
	f.t.Logf("faults: %v; %d times a node did without Redis that was not cut off", f.seen, unforced)
}
