package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// nodeProcess is the environment variable that makes the program a node of -kill; its orders come on standard input.
const nodeProcess = "LEVEE_STAMPEDE_NODE"

// order is a line from the parent to a node. The first one opens the node, the others start and end its callers' work.
type order struct {
	Open *opening `json:",omitempty"`
	Do   string   `json:",omitempty"` // "warm" or "count": work until the next order; "stop": report
}

type opening struct {
	Plan     plan
	Redis    string
	Database string
	Number   int
	Think    time.Duration
}

// event is a line from a node to its parent.
type event struct {
	Ready   bool     `json:",omitempty"`
	Value   uint64   `json:",omitempty"` // a caller of this node has read this value, newer than all before
	Summary *summary `json:",omitempty"`
	Error   string   `json:",omitempty"`
}

// summary is a recording on its way to the parent, and the commands sent meanwhile.
type summary struct {
	Reads, Stale, Errors, Commands int64
	First                          string
	Max                            time.Duration
	Count                          map[int]uint32
}

func summarize(r *recording, commands int64) *summary {
	s := &summary{Reads: r.reads.Load(), Stale: r.stale, Errors: r.errors, Commands: commands, Max: r.max, Count: map[int]uint32{}}
	if r.first != nil {
		s.First = r.first.Error()
	}
	for i, n := range r.count {
		if n > 0 {
			s.Count[i] = n
		}
	}
	return s
}

func (s *summary) addTo(r *recording) {
	one := &recording{stale: s.Stale, errors: s.Errors, max: s.Max}
	one.reads.Store(s.Reads)
	if s.First != "" {
		one.first = errors.New(s.First)
	}
	for i, n := range s.Count {
		one.count[i] = n
	}
	r.merge(one)
}

// nodeMain is the whole program of a node process. It ends when its input does, so no node outlives its parent.
func nodeMain(in io.Reader, out io.Writer) (code int) {
	p := &processNode{out: json.NewEncoder(out)}
	if err := p.obey(json.NewDecoder(in)); err != nil {
		p.say(event{Error: err.Error()})
		return 1
	}
	return 0
}

type processNode struct {
	mu     sync.Mutex // guards out
	out    *json.Encoder
	sent   meter
	before int64 // commands sent before the shift
	newest atomic.Uint64
	crowd  *crowd
	shift  *shift
}

func (p *processNode) say(e event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(e) // a parent that is gone closes the input too
}

func (p *processNode) obey(orders *json.Decoder) error {
	for {
		var o order
		err := orders.Decode(&o)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = p.follow(o)
		}
		if err != nil {
			return err
		}
	}
}

func (p *processNode) follow(o order) error {
	if o.Open != nil {
		return p.open(o.Open)
	}
	if p.crowd == nil {
		return fmt.Errorf("order %q before the node is open", o.Do)
	}
	seen := new(recording)
	if p.shift != nil {
		seen = p.shift.stop()
	}
	if o.Do == "stop" {
		p.shift = nil
		p.say(event{Summary: summarize(seen, p.sent.commands.Load()-p.before)})
		return p.crowd.nodes[0].close()
	}
	p.before = p.sent.commands.Load()
	p.shift = p.crowd.start(context.Background())
	return nil
}

func (p *processNode) open(o *opening) error {
	n, err := openNode("levee", o.Redis, &p.sent, &remoteDB{o.Database, o.Number}, o.Plan)
	if err != nil {
		return err
	}
	p.crowd = &crowd{nodes: []*node{n}, callers: o.Plan.Callers, think: o.Think, work: drawnKeys(1), notice: p.notice}
	p.say(event{Ready: true})
	return nil
}

// notice tells the parent of each new value once, at the moment a caller has it.
func (p *processNode) notice(sequence uint64) {
	for {
		known := p.newest.Load()
		if sequence <= known {
			return
		}
		if p.newest.CompareAndSwap(known, sequence) {
			p.say(event{Value: sequence})
			return
		}
	}
}
