package cache_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
)

// orphaned is a fleet of three nodes in a bubble. The first dies 50 ms into a load that it has
// begun for a caller: its wire is frozen, and more than that the others do not see of a kill. Then
// 100 callers come to each of the others. With ago there is a value, loaded so long before.
func orphaned(t *testing.T, o cache.Options, ago time.Duration, body func(t *testing.T, f *fleet, waiting *calls)) {
	t.Helper()
	o.Lease, o.LoadTimeout = 5*time.Second, time.Minute
	inBubble(t, 3, o, func(t *testing.T, f *fleet) {
		if ago > 0 {
			gets(t, f.nodes[0], "k", value("k", 1))
			time.Sleep(ago)
			f.write("k")
		}
		before := f.queries()
		f.query = func(ctx context.Context, _ string, n int) error {
			if n == before+1 {
				return pass(ctx, 30*time.Second)
			}
			return pass(ctx, 200*time.Millisecond)
		}
		holder := start(t.Context(), 1, "k", f.nodes[0])
		time.Sleep(50 * time.Millisecond)
		equal(t, "loads that the holder has begun", f.queries()-before, 1)
		equal(t, "leases", f.leases(), 1)
		f.nodes[0].link.Freeze()
		body(t, f, start(t.Context(), 200, "k", f.nodes[1:]...))
		must(t, holder.wait()[0].err) // to its own caller it is alive
	})
}

// Number: no caller fails, and at WaitTimeout there is one load per node at the most.
func TestB36_CallersOfADeadHolderLoadOncePerNodeAtWaitTimeout(t *testing.T) {
	o := settings()
	o.WaitTimeout = time.Second
	orphaned(t, o, 0, func(t *testing.T, f *fleet, waiting *calls) {
		allGet(t, waiting.wait(), value("k", 1), o.WaitTimeout+200*time.Millisecond)
		equal(t, "loads", f.queries(), 1+2)
		allGet(t, start(t.Context(), 200, "k", f.nodes[1:]...).wait(), value("k", 1), 0)
		equal(t, "loads after others asked", f.queries(), 1+2)
	})
}

// Number: no caller fails. Without WaitTimeout, our default, they wait for the rest of the lease
// and a poll, and one of them loads for the fleet.
func TestB36_WithoutWaitTimeoutADeadHolderCostsItsLease(t *testing.T) {
	o := settings()
	orphaned(t, o, 0, func(t *testing.T, f *fleet, waiting *calls) {
		for _, g := range waiting.wait() {
			must(t, g.err)
			equal(t, "value", g.value, value("k", 1))
			within(t, "a wait", g.took, f.options.Lease-50*time.Millisecond+10*time.Millisecond+200*time.Millisecond)
		}
		equal(t, "loads", f.queries(), 1+1)
	})
}

// Number: a stale value is served at once, all of the bubble's time, and is refreshed when the dead
// holder's lease has run out.
func TestB36_AStaleValueIsServedAtOnceAfterItsHolderDied(t *testing.T) {
	o := settings()
	o.WaitTimeout = time.Second
	orphaned(t, o, 11*time.Second, func(t *testing.T, f *fleet, waiting *calls) {
		old, refreshed := value("k", 1), value("k", 2)
		allGet(t, waiting.wait(), old, 0)
		for began := time.Now(); time.Since(began) < 4900*time.Millisecond; time.Sleep(100 * time.Millisecond) {
			allGet(t, start(t.Context(), 20, "k", f.nodes[1:]...).wait(), old, 0)
		}
		equal(t, "loads while the lease lasts", f.queries(), 2)
		seen := map[*node]bool{}
		for began := time.Now(); time.Since(began) < 2*time.Second; time.Sleep(50 * time.Millisecond) {
			for _, g := range start(t.Context(), 2, "k", f.nodes[1:]...).wait() {
				must(t, g.err)
				equal(t, "a call's time", g.took, 0)
				seen[g.node] = seen[g.node] || g.value == refreshed
			}
		}
		equal(t, "nodes that see the new value", fmt.Sprint(seen[f.nodes[1]], seen[f.nodes[2]]), "true true")
		equal(t, "loads", f.queries(), 3)
	})
}

// Number: "at once" is 1 s from the start of the load for a value that is past
// stale-while-revalidate: only a refresh that fails or is slow lets it be served.
func TestB36_AValueForErrorsIsServedASecondIntoTheDeadHoldersLoad(t *testing.T) {
	o := settings()
	o.StaleWhileRevalidate, o.StaleIfError, o.WaitTimeout = cache.Off, time.Minute, time.Second
	orphaned(t, o, 11*time.Second, func(t *testing.T, f *fleet, waiting *calls) {
		allGet(t, waiting.wait(), value("k", 1), time.Second-50*time.Millisecond)
		equal(t, "loads", f.queries(), 2)
	})
}

// Number: a waiter takes over within one poll, 750 ms of the bubble's time at the most. It is one
// for the fleet, and nobody is told, as the entry is deleted by hand.
func TestB36_AWaiterTakesOverALeaseThatVanished(t *testing.T) {
	o := settings()
	o.WaitTimeout = 2 * time.Second
	orphaned(t, o, 0, func(t *testing.T, f *fleet, waiting *calls) {
		time.Sleep(600 * time.Millisecond) // the polls are far apart now
		must(t, f.probe.Del(t.Context(), f.nodes[1].RedisKey("k")).Err())
		for _, g := range waiting.wait() {
			must(t, g.err)
			equal(t, "value", g.value, value("k", 1))
			within(t, "a wait", g.took, 600*time.Millisecond+pollCap+200*time.Millisecond)
		}
		equal(t, "loads", f.queries(), 1+1)
		f.stores("k", value("k", 1))
	})
}

// unkept is a fleet in a bubble, in which the first node holds the lease for a minute, and the others load by
// themselves when they have waited for 500 ms. The holder is a node of its own, as WaitTimeout does
// not apply to a load of the caller's own node.
func unkept(t *testing.T, others int, body func(t *testing.T, f *fleet, others []*node)) {
	t.Helper()
	o := settings()
	o.WaitTimeout, o.LoadTimeout = 500*time.Millisecond, 2*time.Minute
	inBubble(t, 1+others, o, func(t *testing.T, f *fleet) {
		f.query = func(ctx context.Context, _ string, n int) error {
			if n == 1 {
				return pass(ctx, time.Minute)
			}
			return pass(ctx, 200*time.Millisecond)
		}
		stuck := start(t.Context(), 1, "k", f.nodes[0])
		synctest.Wait()
		body(t, f, f.nodes[1:])
		equal(t, "commits", f.sum(func(s cache.Stats) int64 { return s.Commits }), 0)
		equal(t, "leases", f.leases(), 1)
		allGet(t, stuck.wait(), value("k", 1), time.Minute)
		f.stores("k", value("k", 1))
	})
}

// Number: one load per node, three in all, in the first second after the timeout, and the results
// are shared: each node keeps its own and does not store it, since the holder lives. After that it
// is one per node and LocalTTL.
func TestB37_AWaitTimeoutCostsOneLoadPerNode(t *testing.T) {
	unkept(t, 3, func(t *testing.T, f *fleet, others []*node) {
		allGet(t, start(t.Context(), 3*300, "k", others...).wait(), value("k", 1), 700*time.Millisecond)
		var later calls
		later.keepAsking(t, others, 800*time.Millisecond)
		equal(t, "loads in the first second after the timeout", f.queries(), 1+3)
		for _, n := range others {
			equal(t, "loads of a node", n.Stats().Loads, 1)
		}
		later.keepAsking(t, others, 10*time.Second)
		if loads := f.queries() - 4; loads < 3 || loads > 3*10 {
			t.Errorf("%d loads in 10 s more, want one per node and LocalTTL at the most", loads)
		}
		equal(t, "loads at once", f.peak(), 1+3)
		for _, g := range later.wait() {
			must(t, g.err)
			within(t, "a call", g.took, 700*time.Millisecond)
		}
	})
}

// Number: "stored or shared". A result of such a load is believed for LocalTTL from its start, and
// served without a wait as long, here in a bubble by the exact instant.
func TestB37_AResultThatWasNotStoredIsServedAsLongAsItIsBelieved(t *testing.T) {
	unkept(t, 1, func(t *testing.T, f *fleet, others []*node) {
		began := time.Now()
		allGet(t, start(t.Context(), 10, "k", others...).wait(), value("k", 1), 700*time.Millisecond)
		for believed := f.options.WaitTimeout + f.options.LocalTTL; time.Since(began) < believed; time.Sleep(50 * time.Millisecond) {
			allGet(t, start(t.Context(), 10, "k", others...).wait(), value("k", 1), 0)
		}
	})
}

// Beside the number: what a node falls back on at WaitTimeout is not what Redis has told it is gone.
// The Delete was a second of the bubble's time and more before, so LocalTTL is over.
func TestB37_AWaitTimeoutBringsBackNothingThatWasDeleted(t *testing.T) {
	o := settings()
	o.WaitTimeout, o.LoadTimeout = 500*time.Millisecond, time.Minute
	inBubble(t, 2, o, func(t *testing.T, f *fleet) {
		for _, n := range f.nodes {
			gets(t, n, "k", value("k", 1))
		}
		v2 := f.write("k")
		must(t, f.nodes[0].Delete(t.Context(), "k"))
		f.query = func(ctx context.Context, _ string, n int) error {
			if n == 2 {
				return pass(ctx, 30*time.Second)
			}
			return pass(ctx, 200*time.Millisecond)
		}
		holder := start(t.Context(), 1, "k", f.nodes[0])
		time.Sleep(o.LocalTTL + 100*time.Millisecond)
		allGet(t, start(t.Context(), 10, "k", f.nodes[1]).wait(), v2, 700*time.Millisecond)
		equal(t, "loads", f.queries(), 3)
		allGet(t, holder.wait(), v2, 30*time.Second)
	})
}

// Beside the number: nor is it this node's own result of an earlier WaitTimeout, once that is not
// believed any more, by the bubble's clock.
func TestB37_AResultThatWasNotStoredEndsWithItsBelief(t *testing.T) {
	unkept(t, 1, func(t *testing.T, f *fleet, others []*node) {
		allGet(t, start(t.Context(), 10, "k", others...).wait(), value("k", 1), 700*time.Millisecond)
		time.Sleep(3 * time.Second)
		allGet(t, start(t.Context(), 10, "k", others...).wait(), value("k", 1), 700*time.Millisecond)
		equal(t, "loads", f.queries(), 1+2)
	})
}

// keepAsking adds 10 calls on each node every 100 ms of a bubble's time, and waits for none.
func (c *calls) keepAsking(t *testing.T, nodes []*node, d time.Duration) {
	for began := time.Now(); time.Since(began) < d; time.Sleep(100 * time.Millisecond) {
		for i := range 10 * len(nodes) {
			c.get(t.Context(), nodes[i%len(nodes)], "k")
		}
	}
}

// tape records what one node's client was asked to send, and how much came back.
type tape struct {
	mu   sync.Mutex // guards sent
	sent []sending
}

type sending struct {
	name  string
	at    time.Time
	bytes int // of the answer
}

func (p *tape) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *tape) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		at := time.Now()
		err := next(ctx, cmd)
		p.record(at, cmd)
		return err
	}
}

func (p *tape) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		at := time.Now()
		err := next(ctx, cmds)
		p.record(at, cmds...)
		return err
	}
}

func (p *tape) record(at time.Time, cmds ...redis.Cmder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range cmds {
		p.sent = append(p.sent, sending{c.Name(), at, answerSize(c)})
	}
}

// answerSize is the length of the strings in an answer.
func answerSize(c redis.Cmder) (n int) {
	switch c := c.(type) {
	case *redis.StringCmd:
		return len(c.Val())
	case *redis.Cmd:
		all, _ := c.Slice()
		for _, v := range all {
			s, _ := v.(string)
			n += len(s)
		}
	}
	return n
}

// polls are the instants of the reads of a header alone.
func (p *tape) polls() (at []time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sent {
		if s.name == "getrange" {
			at = append(at, s.at)
		}
	}
	return at
}

// above counts the answers of more than so many bytes.
func (p *tape) above(bytes int) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sent {
		if s.bytes > bytes {
			n++
		}
	}
	return n
}

// taped gives each node a tape from now on.
func (f *fleet) taped() (tapes []*tape) {
	for _, n := range f.nodes {
		p := &tape{}
		n.client.AddHook(p)
		tapes = append(tapes, p)
	}
	return tapes
}

// mostCommands is what a node may send while it waits for 3 s.
const mostCommands = 60

// Number: one poller per node, 60 commands per node at the most, however many goroutines wait.
// The bubble's clock would not move if anybody span.
func TestB38_WaitersPollOncePerNodeHoweverManyTheyAre(t *testing.T) {
	for _, callers := range []int{10, soak(200, 1000)} {
		t.Run(fmt.Sprint(callers), func(t *testing.T) {
			o := settings()
			o.StreamLength = cache.Off // its reader does not wait for anybody
			o.WaitTimeout = 5 * time.Second
			nodes := soak(5, 20)
			inBubble(t, nodes, o, func(t *testing.T, f *fleet) {
				f.query = takes(3 * time.Second)
				tapes := f.taped()
				holder := start(t.Context(), callers, "k", f.nodes[0])
				synctest.Wait()
				waiting := start(t.Context(), callers*(nodes-1), "k", f.nodes[1:]...)
				allGet(t, waiting.wait(), value("k", 1), 3*time.Second)
				allGet(t, holder.wait(), value("k", 1), 3*time.Second)
				equal(t, "loads", f.queries(), 1)
				for i, n := range f.nodes[1:] {
					equal(t, "waits of a node", n.Stats().Waits, 1)
					isPatient(t, tapes[1+i].polls())
				}
				f.isQuiet(t, tapes)
			})
		})
	}
}

// isQuiet checks how many commands each node has sent, and by the server's count also those
// that no hook sees.
func (f *fleet) isQuiet(t *testing.T, tapes []*tape) {
	t.Helper()
	most := 0
	for _, p := range tapes {
		most = max(most, len(p.sent))
	}
	all := f.mini.Mini().CommandCount()
	t.Logf("%d commands of a node at the most; %d of %d nodes at the server", most, all, len(tapes))
	if most > mostCommands || all > mostCommands*len(tapes) {
		t.Errorf("want %d of a node at the most", mostCommands)
	}
}

// isPatient checks that a node's pauses between polls grow, from about 100 ms (the first ends with
// the subscription) to about 500 ms, each spread by half.
func isPatient(t *testing.T, polls []time.Time) {
	t.Helper()
	if len(polls) < 4 {
		t.Fatalf("%d polls in 3 s", len(polls))
	}
	for i := range polls[1:] {
		pause := min(200*time.Millisecond<<i, 500*time.Millisecond)
		if gap := polls[i+1].Sub(polls[i]); gap < pause/2 || gap > pause*3/2 {
			t.Errorf("poll %d came %v after the one before, want %v, more or less by half", i+1, gap, pause)
		}
	}
}

// Number: polls are jittered: two nodes that begin to wait at the same instant never poll at one.
func TestB38_NodesDoNotPollInStep(t *testing.T) {
	inBubble(t, 5, settings(), func(t *testing.T, f *fleet) {
		f.query = takes(3 * time.Second)
		tapes := f.taped()
		all := start(t.Context(), 1, "k", f.nodes[0])
		synctest.Wait()
		must(t, start(t.Context(), 4, "k", f.nodes[1:]...).wait()[0].err)
		must(t, all.wait()[0].err)
		at := map[time.Time]int{}
		for _, p := range tapes {
			for _, instant := range p.polls() {
				at[instant]++
			}
		}
		for instant, polls := range at {
			if polls > 1 {
				t.Errorf("%d polls at %v", polls, instant)
			}
		}
		equal(t, "there are polls", len(at) > 12, true)
	})
}

// Number: polls do not read the whole value. Callers that accept nothing stale wait beside one of
// 100 KB: each node reads it once, and then the new one. The key is as long as it, since the
// source's values name their keys.
func TestB38_PollsDoNotReadTheValue(t *testing.T) {
	const size = 100 << 10
	key := strings.Repeat("k", size)
	o := settings()
	o.StreamLength = cache.Off // its reader does not wait for anybody
	inBubble(t, 5, o, func(t *testing.T, f *fleet) {
		gets(t, f.nodes[0], key, value(key, 1))
		time.Sleep(11 * time.Second)
		fresh := f.write(key)
		f.query = takes(3 * time.Second)
		tapes := f.taped()
		var running sync.WaitGroup
		for i := range 10 * len(f.nodes) {
			running.Go(func() {
				got, err := f.nodes[i%len(f.nodes)].Get(t.Context(), key, cache.Fresh())
				if got != fresh || err != nil {
					t.Errorf("got %d bytes, %v", len(got), err)
				}
			})
		}
		running.Wait()
		equal(t, "loads", f.queries(), 2)
		equal(t, "nodes that waited", f.sum(func(s cache.Stats) int64 { return s.Waits }), 4)
		for i, p := range tapes {
			if n := p.above(size); n > 2 {
				t.Errorf("node %d has read the value %d times", i, n)
			}
			if f.nodes[i].Stats().Waits > 0 && len(p.polls()) < 4 {
				t.Errorf("node %d has polled %d times only", i, len(p.polls()))
			}
		}
		f.isQuiet(t, tapes)
	})
}
