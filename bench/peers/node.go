package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// order is a line from the parent to a node, a process of its own. Each is answered by one line.
type order struct {
	Do string // open, compete, wait, take, crowd, cpu

	Peer, Addr string // open
	Lease      time.Duration
	Lockers    int

	Name  string
	Hold  time.Duration // compete
	For   time.Duration // compete, wait
	Count int           // take: names; crowd: goroutines
}

// result is a node's answer.
type result struct {
	Error  string        `json:",omitempty"`
	Turns  []turn        `json:",omitempty"`
	InVain bool          `json:",omitempty"` // wait
	CPU    time.Duration `json:",omitempty"`
}

// turn is one time that somebody had the lock, in ns of the machine's clock.
type turn struct {
	Who               int
	Asked, Got, Freed int64 // Freed: when giving it back began
}

// node is what runs in the process.
type node struct {
	lockers []locker
	kept    []held
}

func nodeMain() {
	n := &node{}
	for line := range redistest.Input() {
		var o order
		r, err := result{}, json.Unmarshal([]byte(line), &o)
		if err == nil {
			r, err = n.obey(o)
		}
		if err != nil {
			r.Error = err.Error()
		}
		text, _ := json.Marshal(r)
		redistest.Say("%s", text)
	}
}

func (n *node) obey(o order) (result, error) {
	switch o.Do {
	case "open":
		return result{}, n.open(o)
	case "compete":
		return result{Turns: n.compete(o)}, nil
	case "wait":
		return result{InVain: n.wait(o) != nil}, nil
	case "take":
		return result{}, n.take(o.Name, o.Count)
	case "crowd":
		n.crowd(o)
		return result{}, nil
	case "cpu":
		cpu, err := processorTime()
		return result{CPU: cpu}, err
	}
	return result{}, fmt.Errorf("what is %q?", o.Do)
}

// open replaces the lockers by those of another peer, and warms them up.
func (n *node) open(o order) error {
	for _, k := range n.lockers {
		k.close()
	}
	n.lockers = nil
	p, ok := peerNamed(o.Peer)
	if !ok {
		return fmt.Errorf("no peer %q", o.Peer)
	}
	for i := range o.Lockers {
		k, err := p.open(opening{addr: o.Addr, lease: o.Lease})
		if err != nil {
			return err
		}
		n.lockers = append(n.lockers, k)
		h, err := lockSoon(k, fmt.Sprintf("warm-up-%s-%d", o.Name, i))
		if err != nil {
			return err
		}
		if err := h.Unlock(context.Background()); err != nil {
			return err
		}
	}
	return nil
}

// compete has every locker take the lock again and again.
func (n *node) compete(o order) []turn {
	ctx, cancel := context.WithTimeout(context.Background(), o.For)
	defer cancel()
	var mu sync.Mutex
	var turns []turn
	var all sync.WaitGroup
	for i, k := range n.lockers {
		all.Go(func() {
			own := competing(ctx, k, o)
			mu.Lock()
			defer mu.Unlock()
			for _, t := range own {
				t.Who = i
				turns = append(turns, t)
			}
		})
	}
	all.Wait()
	return turns
}

// between is what a competitor does between two turns: who asks again in the same instant is nobody's customer.
const between = time.Millisecond

func competing(ctx context.Context, k locker, o order) (turns []turn) {
	for ctx.Err() == nil {
		t := turn{Asked: time.Now().UnixNano()}
		h, err := k.lock(ctx, o.Name)
		if err != nil {
			time.Sleep(between)
			continue
		}
		t.Got = time.Now().UnixNano()
		if o.Hold > 0 {
			time.Sleep(o.Hold)
		}
		t.Freed = time.Now().UnixNano()
		if h.Unlock(context.Background()) == nil {
			turns = append(turns, t)
		}
		if o.Hold > 0 {
			time.Sleep(between)
		}
	}
	return turns
}

// wait waits for a lock, but not for ever.
func (n *node) wait(o order) error {
	ctx, cancel := context.WithTimeout(context.Background(), o.For)
	defer cancel()
	_, err := n.lockers[0].lock(ctx, o.Name)
	return err
}

// take takes locks and keeps them.
func (n *node) take(name string, count int) error {
	for i := range count {
		one := name
		if count > 1 {
			one = fmt.Sprintf("%s-%d", name, i)
		}
		h, err := lockSoon(n.lockers[0], one)
		if err != nil {
			return err
		}
		n.kept = append(n.kept, h)
	}
	return nil
}

// crowd leaves goroutines behind that wait for a lock for ever.
func (n *node) crowd(o order) {
	for range o.Count {
		go func() { _, _ = n.lockers[0].lock(context.Background(), o.Name) }()
	}
}
