package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// crowd is the callers of some nodes, the same number on each.
type crowd struct {
	nodes   []*node
	callers int
	think   time.Duration
	work    *workload
	notice  func(sequence uint64) // told of every value that was read; may be nil
}

// shift is one stretch of the crowd's work, from start to stop.
type shift struct {
	crowd      *crowd
	recordings []*recording // one per caller
	stopped    atomic.Bool  // what the callers look at: cheaper than a channel that they all share
	stopping   chan struct{}
	callers    sync.WaitGroup
}

func (c *crowd) start(ctx context.Context) *shift {
	s := &shift{crowd: c, stopping: make(chan struct{})}
	for i := range len(c.nodes) * c.callers {
		r := new(recording)
		s.recordings = append(s.recordings, r)
		// The same numbers in every mode: each caller draws the same keys and pauses.
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		one := &caller{s, c.nodes[i%len(c.nodes)], c.work.caller(rng), rng, r}
		s.callers.Go(func() { one.work(ctx) })
	}
	return s
}

// reads may be asked while the callers work.
func (s *shift) reads() (sum int64) {
	for _, r := range s.recordings {
		sum += r.reads.Load()
	}
	return sum
}

// stop lets every caller finish its read, and adds up what they saw.
func (s *shift) stop() *recording {
	s.stopped.Store(true)
	close(s.stopping)
	s.callers.Wait()
	sum := new(recording)
	for _, r := range s.recordings {
		sum.merge(r)
	}
	return sum
}

// pause sleeps; only a pause too long to be waited for at the end can be cut short, since that costs more. A caller that
// never sleeps still lets the others run after each read: hits in memory would hold a core for ten milliseconds otherwise.
func (s *shift) pause(d time.Duration) {
	switch {
	case d <= 0:
		runtime.Gosched()
	case d < 100*time.Millisecond:
		time.Sleep(d)
	default:
		select {
		case <-time.After(d):
		case <-s.stopping:
		}
	}
}

// caller reads, thinks, and reads again.
type caller struct {
	shift *shift
	node  *node
	next  func() string
	rng   *rand.Rand
	seen  *recording
}

// work begins at a random moment of the pause, so that the callers do not march in step.
func (c *caller) work(ctx context.Context) {
	think := c.shift.crowd.think
	c.shift.pause(c.between(0, think))
	for !c.shift.stopped.Load() {
		c.read(ctx, c.next())
		c.shift.pause(c.between(think/2, think+think/2))
	}
}

func (c *caller) between(low, high time.Duration) time.Duration {
	if high <= low {
		return low
	}
	return low + time.Duration(c.rng.Int64N(int64(high-low)))
}

func (c *caller) read(ctx context.Context, key string) {
	start := time.Now()
	value, stale, err := c.node.read(ctx, key)
	took := time.Since(start)
	if ctx.Err() != nil {
		return // interrupted: says nothing about the node
	}
	c.seen.add(took, stale)
	if err != nil {
		c.seen.fail(err)
		return
	}
	sequence, ok := decode(key, value)
	if !ok {
		c.seen.fail(fmt.Errorf("key %q: got the value %q", key, value))
		return
	}
	if c.shift.crowd.notice != nil {
		c.shift.crowd.notice(sequence)
	}
}
