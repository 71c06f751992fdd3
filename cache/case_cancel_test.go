package cache_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// places are the ways in which the callers of a case may be spread.
var places = []struct {
	name  string
	nodes int
}{{"on one node", 1}, {"across two nodes", 2}}

func TestB11_TheLeadersDeadlineIsItsOwn(t *testing.T) {
	for _, where := range places {
		t.Run(where.name, func(t *testing.T) {
			inBubble(t, where.nodes, settings(), func(t *testing.T, f *fleet) {
				f.query = takes(300 * time.Millisecond)
				short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				leader := start(short, 1, "k", f.nodes[0])
				synctest.Wait()
				long, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				joiners := start(long, 99, "k", f.nodes...)

				g := leader.wait()[0]
				if !errors.Is(g.err, context.DeadlineExceeded) || g.took != 50*time.Millisecond {
					t.Errorf("the leader got %v after %v, want its deadline after 50ms", g.err, g.took)
				}
				allGet(t, joiners.wait(), value("k", 1), 300*time.Millisecond)
				equal(t, "loads", f.queries(), 1)
				equal(t, "cancelled loads", f.cancelled, 0)
			})
		})
	}
}

func TestB12_AnImpatientWaiterLeavesTheOthersTogether(t *testing.T) {
	for _, where := range places {
		t.Run(where.name, func(t *testing.T) {
			inBubble(t, where.nodes, settings(), func(t *testing.T, f *fleet) {
				f.query = takes(500 * time.Millisecond)
				waiting := f.nodes[len(f.nodes)-1]
				leader := start(t.Context(), 1, "k", f.nodes[0])
				synctest.Wait()
				waiters := start(t.Context(), 9, "k", waiting)
				ctx, cancel := context.WithCancel(t.Context())
				impatient := start(ctx, 1, "k", waiting)

				time.Sleep(100 * time.Millisecond)
				cancel()
				g := impatient.wait()[0]
				if !errors.Is(g.err, context.Canceled) || g.took != 100*time.Millisecond {
					t.Errorf("the cancelled waiter got %v after %v, want its cancellation after 100ms", g.err, g.took)
				}
				time.Sleep(20 * time.Millisecond)
				newcomers := start(t.Context(), 20, "k", waiting)

				allGet(t, leader.wait(), value("k", 1), 500*time.Millisecond)
				allGet(t, waiters.wait(), value("k", 1), 500*time.Millisecond)
				allGet(t, newcomers.wait(), value("k", 1), 380*time.Millisecond)
				equal(t, "loads", f.queries(), 1)
			})
		})
	}
}

// ourGoroutines counts the goroutines inside the library: in a bubble those of the bubble, else all,
// and then it is exact only while no other test runs.
func ourGoroutines() (n int) {
	all := make([]byte, 16<<20)
	stacks := strings.Split(string(all[:runtime.Stack(all, true)]), "\n\n")
	bubble := inside.FindString(stacks[0]) // the caller's own
	for _, stack := range stacks {
		ours := strings.Contains(stack, "levee/rebuild.") || strings.Contains(stack, "levee/internal/link.")
		if ours && (bubble == "" || inside.FindString(stack) == bubble) {
			n++
		}
	}
	return n
}

var inside = regexp.MustCompile(`synctest bubble \d+\]`)

// Our failed load is followed by ErrorBackoff, 500 ms, in which callers get the error at once:
// the key loads again at 2 s plus that, and callers of the loading node get ErrLoadTimeout at 2 s.
func TestB15_AStalledLoaderFreesItsKeyAtLoadTimeout(t *testing.T) {
	o := settings()
	o.LoadTimeout = 2 * time.Second
	inBubble(t, 2, o, func(t *testing.T, f *fleet) {
		exchange(t, f)
		stuck := make(chan struct{})
		f.query = func(ctx context.Context, _ string, n int) error {
			if n == 1 {
				<-stuck // whatever the context says
				return nil
			}
			return pass(ctx, 10*time.Millisecond)
		}
		time.Sleep(time.Second) // to the end of what the exchange left to the background
		synctest.Wait()
		before, began := ourGoroutines(), time.Now()
		var all calls
		first := map[*node]time.Duration{}
		for range 300 {
			for _, n := range f.nodes {
				all.running.Go(func() {
					asked := time.Since(began)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					v, err := n.Get(ctx, "k")
					took := time.Since(began) - asked
					within(t, "a call with a deadline of 1 s", took, time.Second)
					all.mu.Lock()
					defer all.mu.Unlock()
					if _, ok := first[n]; err == nil && !ok {
						first[n] = asked + took
					}
					var known *cache.BackoffError
					switch {
					case err == nil && v != value("k", 2):
						t.Errorf("got %s", v)
					case err != nil && asked > 2600*time.Millisecond:
						t.Errorf("at %v: %v", asked, err)
					case err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, cache.ErrLoadTimeout) && !errors.As(err, &known):
						t.Errorf("at %v: %v", asked, err)
					}
				})
			}
			time.Sleep(100 * time.Millisecond)
			if time.Since(began) == time.Second {
				f.write("k") // so that the late result can be told from a new one
			}
		}
		all.running.Wait()
		synctest.Wait()
		for i, n := range f.nodes {
			t.Logf("node %d has the value after %v", i, first[n])
			if first[n] == 0 || first[n] > 2700*time.Millisecond {
				t.Errorf("node %d has the value after %v, want 2.5s and a little", i, first[n])
			}
		}
		equal(t, "goroutines more than before", ourGoroutines()-before, 1)
		equal(t, "abandoned loads", f.sum(func(s cache.Stats) int64 { return s.Abandoned }), 1)
		equal(t, "abandoned loads that still run", f.sum(func(s cache.Stats) int64 { return s.AbandonedNow }), 1)

		close(stuck)
		synctest.Wait()
		equal(t, "abandoned loads that still run", f.sum(func(s cache.Stats) int64 { return s.AbandonedNow }), 0)
		for _, n := range f.nodes {
			gets(t, n, "k", value("k", 2)) // the late result was dropped
		}
		f.stores("k", value("k", 2))
		equal(t, "most loads at once", f.peak(), 2) // the stuck one, and one beside it
		time.Sleep(time.Second)                     // as before
		synctest.Wait()
		equal(t, "goroutines more than before", ourGoroutines()-before, 0)
	})
}

// exchange lets each node wait for the other once, so that all of the library's long-lived
// goroutines run. It runs in a bubble.
func exchange(t *testing.T, f *fleet) {
	t.Helper()
	for i, n := range f.nodes {
		key := "warm" + string(rune('a'+i))
		first := start(t.Context(), 1, key, n)
		synctest.Wait()
		others := start(t.Context(), 2, key, f.nodes...)
		allGet(t, first.wait(), value(key, 1), 200*time.Millisecond)
		allGet(t, others.wait(), value(key, 1), 200*time.Millisecond)
	}
}

func TestB16_ARefreshOutlivesTheRequestThatBeganIt(t *testing.T) {
	inBubble(t, 1, settings(), func(t *testing.T, f *fleet) {
		f.query = takes(100 * time.Millisecond)
		n := f.nodes[0]
		gets(t, n, "k", value("k", 1))
		time.Sleep(11 * time.Second)
		f.write("k")

		ctx, cancel := context.WithCancel(t.Context())
		e, err := n.GetEntry(ctx, "k")
		if e.Value != value("k", 1) || e.State != cache.StateStale || err != nil {
			t.Errorf("got %+v, %v, want the stale value", e, err)
		}
		time.Sleep(time.Millisecond)
		cancel()
		seen := firstSeen(t, n, "k", value("k", 2), 10*time.Millisecond, time.Second)
		within(t, "until the new value is seen", seen, 200*time.Millisecond)
		equal(t, "loads", f.queries(), 2)
		equal(t, "cancelled loads", f.cancelled, 0)
	})
}

func TestB16_AFailedRefreshIsTriedAgainByALaterRead(t *testing.T) {
	inBubble(t, 1, settings(), func(t *testing.T, f *fleet) {
		n := f.nodes[0]
		gets(t, n, "k", value("k", 1))
		time.Sleep(11 * time.Second)
		f.write("k")
		f.query = func(ctx context.Context, _ string, n int) error {
			if n == 2 {
				return errors.New("no route to the database")
			}
			return pass(ctx, 100*time.Millisecond)
		}
		seen := firstSeen(t, n, "k", value("k", 2), 10*time.Millisecond, 2*time.Second)
		within(t, "until the new value is seen", seen, 650*time.Millisecond) // a back-off and a load
		equal(t, "loads", f.queries(), 3)
	})
}

// firstSeen reads each tick until it sees want, in a bubble. Everything before must be a value
// that is served at once.
func firstSeen(t *testing.T, n *node, key, want string, tick, limit time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	for time.Since(began) < limit {
		asked := time.Now()
		v, err := n.Get(t.Context(), key)
		if err != nil || time.Since(asked) > 0 {
			t.Errorf("got %q, %v after %v", v, err, time.Since(asked))
		}
		if v == want {
			return time.Since(began)
		}
		time.Sleep(tick)
	}
	t.Errorf("%s was not seen within %v", want, limit)
	return limit
}

// The case lets node 2 load at once. Our load does not die with its caller, so node 2 waits
// for it, and there is one load.
func TestB17_ACancelledLeaderLeavesALeaseThatALoadOwns(t *testing.T) {
	o := settings()
	o.Lease = 10 * time.Second
	inBubble(t, 2, o, func(t *testing.T, f *fleet) {
		ctx, cancel := context.WithCancel(t.Context())
		leader := start(ctx, 1, "k", f.nodes[0])
		time.Sleep(100 * time.Millisecond)
		cancel()
		equal(t, "leader", leader.wait()[0].took, 100*time.Millisecond)
		time.Sleep(20 * time.Millisecond)
		allGet(t, start(t.Context(), 1, "k", f.nodes[1]).wait(), value("k", 1), 80*time.Millisecond)
		equal(t, "loads", f.queries(), 1)
		equal(t, "leases", f.leases(), 0)
	})
}

func TestB17_AnAcquireWhoseAnswerIsTooLateIsGivenBack(t *testing.T) {
	o := settings()
	o.Lease = 10 * time.Second
	inBubble(t, 1, o, func(t *testing.T, f *fleet) {
		n := f.nodes[0]
		gets(t, n, "other", value("other", 1)) // so that the server's clock is known
		slow := &lateReplies{match: isAcquire, by: 200 * time.Millisecond}
		n.client.AddHook(slow)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		caller := start(ctx, 1, "k", n)
		time.Sleep(50 * time.Millisecond)
		equal(t, "leases while the answer is on its way", f.leases(), 1)
		g := caller.wait()[0]
		if !errors.Is(g.err, context.DeadlineExceeded) || g.took != 100*time.Millisecond {
			t.Errorf("got %v after %v, want the caller's deadline after 100ms", g.err, g.took)
		}
		time.Sleep(150 * time.Millisecond)
		if f.leases() > 0 {
			t.Error("300 ms after the acquire a lease is left that no load owns")
		}
	})
}

// lateReplies delivers the answers to some commands late.
type lateReplies struct {
	match func(redis.Cmder) bool
	by    time.Duration
}

func (l *lateReplies) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook sleeps; it is for bubbles.
func (l *lateReplies) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if l.match(cmd) {
			time.Sleep(l.by)
		}
		return err
	}
}

func (l *lateReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestB18_AFrozenRedisCostsACallNoMoreThanItsDeadline(t *testing.T) {
	for _, tc := range []struct {
		situation, key  string
		deadline, limit time.Duration
	}{
		{"a stale copy", "warm", 100 * time.Millisecond, 100 * time.Millisecond},
		{"a stale copy and patience", "warm", 5 * time.Second, 100 * time.Millisecond},
		{"no copy", "cold", 100 * time.Millisecond, 100 * time.Millisecond},
		{"no copy and patience", "cold", 5 * time.Second, 300 * time.Millisecond}, // RedisTimeout and the load
	} {
		t.Run(tc.situation, func(t *testing.T) {
			inBubble(t, 1, settings(), func(t *testing.T, f *fleet) {
				n := f.nodes[0]
				gets(t, n, "warm", value("warm", 1))
				time.Sleep(11 * time.Second) // stale, and not believed any more
				f.mini.Freeze()
				ctx, cancel := context.WithTimeout(t.Context(), tc.deadline)
				defer cancel()
				g := start(ctx, 1, tc.key, n).wait()[0]
				within(t, "the call", g.took, tc.limit+20*time.Millisecond)
				hasty := tc.deadline == 100*time.Millisecond
				if g.value != value(tc.key, 1) && !(hasty && errors.Is(g.err, context.DeadlineExceeded)) {
					t.Errorf("got %q, %v", g.value, g.err)
				}
				f.mini.Thaw()
			})
		})
	}
}

// The bound of 256 is looked at before a call: a first burst may leave as many as it has callers, and
// the next ones leave none.
func TestB18_CallsStuckInsideTheClientAreBounded(t *testing.T) {
	inBubble(t, 1, settings(), func(t *testing.T, f *fleet) {
		gets(t, f.nodes[0], "other", value("other", 1))
		f.mini.Freeze()
		const burst = 400
		for round := range 3 {
			var all calls
			for i := range burst {
				all.get(t.Context(), f.nodes[0], fmt.Sprint(round, "-", i))
			}
			for _, g := range all.wait() {
				must(t, g.err)
			}
			synctest.Wait()
			if stuck := ourGoroutines(); stuck > burst+10 {
				t.Errorf("round %d: %d goroutines are stuck", round, stuck)
			}
		}
		f.mini.Thaw()
	})
}

func TestB18_AStoppedServerCostsAStockClientNoMoreThanRedisTimeout(t *testing.T) {
	s := redistest.RealOnly(t)
	f := onServer(t, s, 1, settings())
	f.query = takes(0)
	gets(t, f.nodes[0], "other", value("other", 1))
	must(t, s.Pause())
	began := time.Now()
	gets(t, f.nodes[0], "k", value("k", 1))
	within(t, "a call", time.Since(began), time.Second) // stock sockets wait for 3 s, several times
	must(t, s.Resume())
}
