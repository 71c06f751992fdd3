package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// TestWhateverHappensAllGetOneResult: callers on several nodes run some ids, whose functions take their time, fail, panic and
// end their goroutines, while answers are lost and nodes are cut off, in half of the sequences for longer than a lease. All calls
// without an error have the same value, and without leases lost no function has succeeded twice.
func TestWhateverHappensAllGetOneResult(t *testing.T) {
	seed := *lockSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	t.Logf("-lock.seed=%d", seed)
	sequences := 20
	if soaks() {
		sequences = 1000
	}
	seen := map[string]int{}
	for i := range sequences {
		bubble(t, func(t *testing.T, s *server) {
			c := &chaos{server: s, rand: rand.New(rand.NewPCG(seed+uint64(i), 1)), ids: map[string]*knownID{}}
			c.run(i%2 == 0)
			c.judge(fmt.Sprintf("sequence %d", i), i%2 == 0, seen)
		})
	}
	for _, what := range []string{"succeeded", "failed", "answered", "not stored", "unavailable", "lost"} {
		if seen[what] == 0 {
			t.Errorf("no call was %s: %v", what, seen)
		}
	}
	t.Logf("calls: %v", seen)
}

// chaos is one sequence, in a bubble of its own.
type chaos struct {
	*server
	mu   sync.Mutex // guards what follows
	rand *rand.Rand
	ids  map[string]*knownID
	runs int
}

// knownID is what is known of an id.
type knownID struct {
	succeeded []string // values of functions
	stored    map[string]bool
	errs      []error
}

func (c *chaos) intN(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rand.IntN(n)
}

func (c *chaos) of(id string) *knownID {
	if c.ids[id] == nil {
		c.ids[id] = &knownID{stored: map[string]bool{}}
	}
	return c.ids[id]
}

// run has the calls and the faults of two minutes of the bubble's clock.
func (c *chaos) run(long bool) {
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	var all sync.WaitGroup
	for range 3 {
		n := onceOf[string](c.server)
		for range 4 {
			all.Go(func() { c.calls(ctx, n) })
		}
		all.Go(func() { c.disturb(ctx, n.node, long) })
	}
	all.Wait()
	time.Sleep(time.Minute) // of what is cleared up
	n := onceOf[string](c.server)
	for id := range c.ids {
		c.call(c.t.Context(), n, id)
	}
}

// calls makes one call after the other, every 20 s of the bubble's clock with other ids.
func (c *chaos) calls(ctx context.Context, n onceNode[string]) {
	for began := time.Now(); ctx.Err() == nil; {
		time.Sleep(time.Duration(c.intN(5000)) * time.Millisecond)
		c.call(ctx, n, fmt.Sprint("id", int(time.Since(began)/(20*time.Second)), "-", c.intN(2)))
	}
}

// call makes one; its goroutine may end in it.
func (c *chaos) call(ctx context.Context, n onceNode[string], id string) {
	var over sync.WaitGroup
	over.Go(func() {
		defer func() { _ = recover() }()
		v, err := n.Once.Do(ctx, id, func(context.Context) (string, error) { return c.function(id) })
		c.mu.Lock()
		defer c.mu.Unlock()
		known := c.of(id)
		if err == nil {
			known.stored[v] = true
		}
		known.errs = append(known.errs, err)
	})
	over.Wait()
}

// function takes its time, by the bubble's clock, and ends in one of all the ways there are.
func (c *chaos) function(id string) (string, error) {
	time.Sleep(time.Duration(c.intN(8000)) * time.Millisecond)
	if c.intN(3) == 0 {
		time.Sleep(20 * time.Second)
	}
	switch c.intN(12) {
	case 0:
		panic(errTest)
	case 1:
		runtime.Goexit()
	case 2, 3, 4, 5, 6, 7:
		return "", errTest
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	v := fmt.Sprint(id, " run ", c.runs)
	c.of(id).succeeded = append(c.of(id).succeeded, v)
	return v, nil
}

// disturb makes things go wrong on a node of the bubble. Between two times that it is cut off for less than a lease there is
// time for renewals.
func (c *chaos) disturb(ctx context.Context, n node, long bool) {
	defer n.wire.Thaw()
	defer n.faults.Clear()
	for ctx.Err() == nil {
		time.Sleep(time.Duration(4000+c.intN(4000)) * time.Millisecond)
		script := []*redis.Script{scripts.start, scripts.store, scripts.release}[c.intN(3)]
		switch c.intN(4) {
		case 0:
			n.faults.LoseReply(redistest.Script(script)).Times(1)
		case 1:
			n.faults.Fail(redistest.Script(script), nil).Times(1)
		default:
			n.wire.Freeze()
			time.Sleep(time.Duration(c.intN(2000)) * time.Millisecond)
			if long {
				time.Sleep(12 * time.Second)
			}
			n.wire.Thaw()
		}
	}
}

// judge fails where a promise was broken, and counts what has happened.
func (c *chaos) judge(what string, long bool, seen map[string]int) {
	c.t.Helper()
	for id, known := range c.ids {
		if len(known.stored) > 1 {
			c.t.Errorf("%s: %s has the results %v", what, id, known.stored)
		}
		if !long && len(known.succeeded) > 1 {
			c.t.Errorf("%s: %s has run as %q", what, id, known.succeeded)
		}
		seen["succeeded"] += len(known.succeeded)
		for _, err := range known.errs {
			switch {
			case err == nil:
				seen["answered"]++
			case errors.Is(err, ErrNotStored) && errors.Is(err, ErrLost):
				seen["lost"]++
			case errors.Is(err, ErrNotStored):
				seen["not stored"]++
			case errors.Is(err, ErrUnavailable):
				seen["unavailable"]++
			case errors.Is(err, errTest):
				seen["failed"]++
			}
		}
	}
}
