package cache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// at runs a caller on a node some time after now, in a bubble, and returns what it gets.
func (f *fleet) at(ctx context.Context, after time.Duration, node int, key string) *calls {
	c := &calls{}
	c.running.Go(func() {
		if pass(ctx, after) == nil {
			c.get(ctx, f.nodes[node], key)
		}
	})
	return c
}

func TestB24_ALoadThatOutlivesItsLeaseKeepsItByRenewing(t *testing.T) {
	o := settings()
	o.Lease = 500 * time.Millisecond
	inBubble(t, 3, o, func(t *testing.T, f *fleet) {
		f.query = takes(2 * time.Second)
		a := f.at(t.Context(), 0, 0, "k")
		b := f.at(t.Context(), 600*time.Millisecond, 1, "k")
		c := f.at(t.Context(), 1200*time.Millisecond, 2, "k")
		allGet(t, a.wait(), value("k", 1), 2000*time.Millisecond)
		allGet(t, b.wait(), value("k", 1), 1400*time.Millisecond)
		allGet(t, c.wait(), value("k", 1), 800*time.Millisecond)
		equal(t, "loads", f.queries(), 1)
		equal(t, "leases lost", f.sum(func(s cache.Stats) int64 { return s.LeasesLost }), 0)
	})
}

func TestB24_ALostLeaseCostsOneLoadMore(t *testing.T) {
	o := settings()
	o.Lease = 500 * time.Millisecond
	inBubble(t, 3, o, func(t *testing.T, f *fleet) {
		f.query = takes(2 * time.Second)
		blocked := f.nodes[0].faults.Fail(isRenewal, nil)
		a := f.at(t.Context(), 0, 0, "k")
		b := f.at(t.Context(), 600*time.Millisecond, 1, "k")
		c := f.at(t.Context(), 1200*time.Millisecond, 2, "k")
		allGet(t, a.wait(), value("k", 1), 2000*time.Millisecond)
		allGet(t, b.wait(), value("k", 1), 2000*time.Millisecond)
		allGet(t, c.wait(), value("k", 1), 1400*time.Millisecond) // waits for the second
		equal(t, "loads", f.queries(), 2)
		equal(t, "leases lost", f.nodes[0].Stats().LeasesLost, 1)
		equal(t, "refused commits", f.nodes[0].Stats().Refused, 1)
		equal(t, "renewals tried", blocked.Count() > 1, true)
	})
}

// The holder is paused for three times its lease after it has read v1, by a cut from Redis that
// delivers its renewals late.
func TestB25_AHolderThatWasPausedDuringItsLoadStoresNothing(t *testing.T) {
	o := settings()
	o.LoadTimeout = 30 * time.Second
	inBubble(t, 2, o, func(t *testing.T, f *fleet) {
		f.query = func(ctx context.Context, _ string, n int) error {
			if n == 1 {
				return pass(ctx, 3*o.Lease+time.Second)
			}
			return pass(ctx, 200*time.Millisecond)
		}
		paused := start(t.Context(), 1, "k", f.nodes[0])
		time.Sleep(100 * time.Millisecond)
		f.nodes[0].link.Freeze()
		v2 := f.write("k")
		time.Sleep(o.Lease) // to the end of the lease, and a little more
		allGet(t, start(t.Context(), 1, "k", f.nodes[1]).wait(), v2, 200*time.Millisecond)
		f.stores("k", v2)
		f.never("k", value("k", 1))
		time.Sleep(2 * o.Lease)
		f.nodes[0].link.Thaw()

		allGet(t, paused.wait(), value("k", 1), 3*o.Lease+time.Second)
		f.stores("k", v2)
		for _, n := range f.nodes {
			gets(t, n, "k", v2)
		}
		equal(t, "loads", f.queries(), 2)
		equal(t, "leases lost", f.nodes[0].Stats().LeasesLost, 1)
	})
}

// The holder is paused with its commit on the way, which arrives after three times the lease.
func TestB25_ACommitThatWasPausedIsRefused(t *testing.T) {
	o := settings()
	inBubble(t, 2, o, func(t *testing.T, f *fleet) {
		late := f.nodes[0].faults.Late(isCommit)
		allGet(t, start(t.Context(), 1, "k", f.nodes[0]).wait(), value("k", 1), 200*time.Millisecond)
		v2 := f.write("k")
		time.Sleep(o.Lease)
		allGet(t, start(t.Context(), 1, "k", f.nodes[1]).wait(), v2, 200*time.Millisecond)
		f.never("k", value("k", 1))
		time.Sleep(2 * o.Lease)

		arrived := late.Release(t.Context())
		equal(t, "commits that arrive late", len(arrived) > 0, true)
		for _, cmd := range arrived {
			answer, err := cmd.Slice()
			if err != nil || answer[0] != "refused" {
				t.Errorf("a late commit was answered %v, %v", answer, err)
			}
		}
		f.stores("k", v2)
		for _, n := range f.nodes {
			gets(t, n, "k", v2)
		}
		equal(t, "loads", f.queries(), 2)
	})
}

func TestB26_AnEndingHolderLeavesTheNextOnesLease(t *testing.T) {
	for _, outcome := range []error{nil, errors.New("no route to the database")} {
		t.Run(fmt.Sprint(outcome), func(t *testing.T) {
			o := settings()
			o.Lease = 300 * time.Millisecond
			inBubble(t, 3, o, func(t *testing.T, f *fleet) {
				f.query = func(ctx context.Context, _ string, n int) error {
					if err := pass(ctx, time.Second); err != nil || n > 1 {
						return err
					}
					return outcome
				}
				key := f.nodes[0].RedisKey("k")
				f.nodes[0].faults.Fail(isRenewal, nil)
				a := f.at(t.Context(), 0, 0, "k")
				b := f.at(t.Context(), 350*time.Millisecond, 1, "k")
				c := f.at(t.Context(), 1050*time.Millisecond, 2, "k")
				time.Sleep(900 * time.Millisecond)
				before := f.lease(key)
				time.Sleep(140 * time.Millisecond)
				if after := f.lease(key); after == "" || after != before {
					t.Errorf("the second holder's lease was %q, and is %q since the first has ended", before, after)
				}
				equal(t, "the first's outcome", errors.Is(a.wait()[0].err, outcome), true)
				allGet(t, b.wait(), value("k", 1), time.Second)
				allGet(t, c.wait(), value("k", 1), 300*time.Millisecond)
				equal(t, "loads", f.queries(), 2)
			})
		})
	}
}

// The proxy passes the acquire on and breaks the connection before the answer, so the client
// sends it again by itself. The machine may be slow for a moment, but not every time.
func TestB30_AnAcquireThatTheClientRepeatsIsKnownAsOurOwn(t *testing.T) {
	s := redistest.Real(t)
	proxy := redistest.NewProxy(t, s.Addr())
	o := settings()
	o.Lease, o.RedisTimeout = 10*time.Second, 5*time.Second
	f := newFleet(t, s.Client(t), o, func() (redis.UniversalClient, *redistest.Link) { return proxy.Client(t, s), nil })
	f.grow(1)
	n := f.nodes[0]
	f.query = takes(0)
	gets(t, n, "warm", value("warm", 1)) // the server knows the scripts now
	fastest := time.Hour
	const rounds = 10
	for i := range rounds {
		key := fmt.Sprint("k", i)
		lost := proxy.LoseReply("\r\ntry\r\n")
		began := time.Now()
		gets(t, n, key, value(key, 1))
		fastest = min(fastest, time.Since(began))
		must(t, lost.Release(t.Context()))
		equal(t, "a lease is left", f.lease(n.RedisKey(key)), "")
		f.stores(key, value(key, 1))
	}
	within(t, "the fastest", fastest, 50*time.Millisecond)
	st := n.Stats()
	equal(t, "loads", f.queries(), 1+rounds)
	equal(t, "commits", st.Commits, 1+rounds)
	equal(t, "waits", st.Waits, 0)
	equal(t, "calls without Redis", st.RedisErrors, 0)
	equal(t, "leases lost", st.LeasesLost, 0)
}
