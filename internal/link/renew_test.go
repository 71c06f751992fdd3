package link

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

const leaseLength = 3 * time.Second

// extend renews a lease that is a key of its own, in the manner of an entry's.
var extend = redis.NewScript(`
	if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'lost'} end
	redis.call('PEXPIRE', KEYS[1], ARGV[2])
	return {'held'}`)

// tenancy is a lease under test: a key that holds its own name, and what was heard of it.
type tenancy struct {
	Renewal
	client redis.UniversalClient
	mu     sync.Mutex // guards heard and at
	heard  []error
	at     time.Time
}

// hold takes a lease and has it renewed.
func hold(t *testing.T, l *Link, client redis.UniversalClient, key string, d time.Duration) *tenancy {
	t.Helper()
	h := take(t, l, client, key, d)
	l.Leases.Add(&h.Renewal)
	return h
}

// take takes a lease that is not renewed yet.
func take(t *testing.T, l *Link, client redis.UniversalClient, key string, d time.Duration) *tenancy {
	t.Helper()
	h := &tenancy{client: client}
	h.Sent, h.Lease, h.Every = l.Clock.Now(), d, d/3
	h.Call = ScriptCall{Script: extend, Key: key, Args: []any{key, d.Milliseconds()}}
	h.Lost = func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.heard, h.at = append(h.heard, err), time.Now()
	}
	must(t, client.Set(t.Context(), key, key, d).Err())
	return h
}

// lost is what was heard so far.
func (h *tenancy) lost() ([]error, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.heard), h.at
}

// mustLive fails unless the lease is held, here and in Redis.
func (h *tenancy) mustLive(t *testing.T) {
	t.Helper()
	if errs, _ := h.lost(); errs != nil {
		t.Fatalf("%s: lost, %v", h.Call.Key, errs)
	}
	if h.client.PTTL(t.Context(), h.Call.Key).Val() <= 0 {
		t.Fatalf("%s: no longer in Redis", h.Call.Key)
	}
}

// mustLiveFor fails unless the lease is held all the while. It is for use in a bubble.
func (h *tenancy) mustLiveFor(t *testing.T, d time.Duration) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		h.mustLive(t)
	}
}

// mustBeUnheard fails if a loss was reported.
func (h *tenancy) mustBeUnheard(t *testing.T) {
	t.Helper()
	if errs, _ := h.lost(); len(errs) > 0 {
		t.Errorf("%s: heard %v", h.Call.Key, errs)
	}
}

// mustBeLost fails unless the loss was reported once, with why, at the given time.
func (h *tenancy) mustBeLost(t *testing.T, why error, at time.Time) {
	t.Helper()
	errs, when := h.lost()
	if len(errs) != 1 || !errors.Is(errs[0], why) {
		t.Fatalf("%s: heard %v, want %v once", h.Call.Key, errs, why)
	}
	if !when.Equal(at) {
		t.Errorf("%s: lost %v after the expected time", h.Call.Key, when.Sub(at))
	}
}

// renewGoroutines counts a renewer's goroutines.
func renewGoroutines() int {
	synctest.Wait()
	return goroutinesIn("link.(*Renewer).run(", "link.(*Renewer).renew(")
}

// traffic is a hook that records the keys of each pipeline of renewals.
type traffic struct {
	panicky
	mu   sync.Mutex // guards sent
	sent [][]string
}

func (p *traffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (p *traffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var keys []string
		for _, c := range cmds {
			if c.Name() == "evalsha" {
				keys = append(keys, fmt.Sprint(c.Args()[3]))
			}
		}
		if keys != nil {
			p.mu.Lock()
			p.sent = append(p.sent, keys)
			p.mu.Unlock()
		}
		return next(ctx, cmds)
	}
}

// pipelines is what was sent so far.
func (p *traffic) pipelines() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sent)
}

// watch records the renewals of l from now on.
func watch(l *Link) *traffic {
	p := &traffic{}
	l.Client.AddHook(p)
	return p
}

// inLeaseBubble runs f in a bubble with a link to its server, and a hook that has a say in its commands.
func inLeaseBubble(t *testing.T, f func(t *testing.T, b *redistest.BubbleServer, l *Link, faults *redistest.Faults)) {
	t.Helper()
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		c := b.Client(t)
		faults := redistest.NewFaults(t)
		c.AddHook(faults)
		must(t, extend.Load(t.Context(), c).Err())
		f(t, b, open(t, c), faults)
	})
}

func TestALeaseIsRenewedEachThird(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, _ *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
		renewals := watch(l)
		h := hold(t, l, l.Client, "k", leaseLength)
		for i := range 10 {
			equal(t, "renewals", len(renewals.pipelines()), i)
			equal(t, "ends", l.Leases.Ends(&h.Renewal), Deadline(l.Clock.Now(), leaseLength))
			time.Sleep(leaseLength/3 - time.Millisecond)
			equal(t, "renewals just before the next", len(renewals.pipelines()), i)
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		h.mustLiveFor(t, time.Second)
	})
}

func TestALeaseIsRenewedAsOftenAsIsAskedForAndAtLeastEachThird(t *testing.T) {
	for every, times := range map[time.Duration]int{
		leaseLength / 10: 30,
		leaseLength / 3:  9,
		leaseLength:      9,
	} {
		inLeaseBubble(t, func(t *testing.T, _ *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
			renewals := watch(l)
			h := take(t, l, l.Client, "k", leaseLength)
			h.Every = every
			l.Leases.Add(&h.Renewal)
			time.Sleep(3*leaseLength + time.Millisecond)
			equal(t, "renewals", len(renewals.pipelines()), times)
			h.mustLive(t)
		})
	}
}

func TestALeaseThatIsGoneIsReportedOnce(t *testing.T) {
	for situation, change := range map[string]func(context.Context, redis.UniversalClient){
		"deleted":    func(ctx context.Context, c redis.UniversalClient) { c.Del(ctx, "k") },
		"taken":      func(ctx context.Context, c redis.UniversalClient) { c.Set(ctx, "k", "another", time.Hour) },
		"all erased": func(ctx context.Context, c redis.UniversalClient) { c.FlushAll(ctx) },
	} {
		t.Run(situation, func(t *testing.T) {
			inLeaseBubble(t, func(t *testing.T, _ *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
				h := hold(t, l, l.Client, "k", leaseLength)
				next := time.Now().Add(2 * leaseLength / 3)
				time.Sleep(leaseLength / 2)
				change(t.Context(), l.Client)
				renewals := watch(l)
				time.Sleep(5 * leaseLength)
				h.mustBeLost(t, ErrTaken, next)
				equal(t, "renewals until the loss was known", len(renewals.pipelines()), 1)
			})
		})
	}
}

func TestALeaseExpiresAtItsDeadlineWhenRedisIsAway(t *testing.T) {
	for situation, disturb := range map[string]func(*redistest.BubbleServer, *redistest.Faults){
		"frozen":  func(b *redistest.BubbleServer, _ *redistest.Faults) { b.Freeze() },
		"failing": func(_ *redistest.BubbleServer, f *redistest.Faults) { f.Fail(redistest.Any, nil) },
		"answering with an error": func(_ *redistest.BubbleServer, f *redistest.Faults) {
			f.Fail(redistest.Any, redistest.ReplyError("LOADING Redis is loading the dataset in memory"))
		},
		"refusing": func(b *redistest.BubbleServer, _ *redistest.Faults) { b.Close() },
	} {
		t.Run(situation, func(t *testing.T) {
			inLeaseBubble(t, func(t *testing.T, b *redistest.BubbleServer, l *Link, f *redistest.Faults) {
				h := hold(t, l, l.Client, "k", leaseLength)
				sent := time.Now().Add(leaseLength / 3) // of the one renewal that is answered
				time.Sleep(leaseLength / 2)
				disturb(b, f)
				time.Sleep(5 * leaseLength)
				h.mustBeLost(t, ErrExpired, sent.Add(leaseLength-leaseLength/driftLoss))
			})
		})
	}
}

func TestALeaseEndsHereBeforeItEndsInRedis(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, b *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
		h := take(t, l, l.Client, "k", leaseLength)
		left := make(chan time.Duration, 1)
		h.Lost = func(error) { left <- b.Mini().TTL("k") }
		l.Leases.Add(&h.Renewal)
		time.Sleep(1500 * time.Millisecond)
		b.Freeze()
		if d := <-left; d <= 0 || d > leaseLength/50 {
			t.Errorf("Redis keeps the lease for another %v when its holder gives it up", d)
		}
		b.Thaw()
	})
}

// The answer to a renewal says how long the lease lives from when Redis had it, which may be
// as early as its sending.
func TestARenewalCountsFromItsSending(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, b *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
		h := hold(t, l, l.Client, "k", leaseLength)
		sent := l.Clock.Now().Add(leaseLength / 3)
		time.Sleep(leaseLength/3 - time.Millisecond)
		b.Freeze()
		time.Sleep(leaseLength / 4)
		b.Thaw()
		synctest.Wait()
		equal(t, "ends", l.Leases.Ends(&h.Renewal), Deadline(sent, leaseLength))
	})
}

func TestB31b_SilenceForOneTickDoesNotLoseALease(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, b *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
		const lease = time.Second
		h := hold(t, l, l.Client, "k", lease)
		for range 5 {
			time.Sleep(lease/3 - 50*time.Millisecond)
			b.Freeze()
			time.Sleep(400 * time.Millisecond)
			b.Thaw()
			h.mustLiveFor(t, 2*lease)
		}
	})
}

func TestOneErrorDoesNotStopTheRenewals(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, _ *redistest.BubbleServer, l *Link, f *redistest.Faults) {
		h := hold(t, l, l.Client, "k", leaseLength)
		f.Fail(redistest.Script(extend), nil).Times(1)
		h.mustLiveFor(t, 2*leaseLength)
		f.Fail(redistest.Script(extend), redistest.ReplyError("LOADING")).Times(2)
		h.mustLiveFor(t, 2*leaseLength)
		f.LoseReply(redistest.Script(extend)).Times(1)
		h.mustLiveFor(t, 2*leaseLength)
	})
}

func TestOneSlowRenewalDelaysNoOther(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, _ *redistest.BubbleServer, l *Link, f *redistest.Faults) {
		slow := hold(t, l, l.Client, "slow", leaseLength)
		f.Hang(redistest.Contains("slow"), time.Hour)
		began := time.Now()
		time.Sleep(leaseLength / 10) // so that they travel apart
		quick := hold(t, l, l.Client, "quick", leaseLength)
		quick.mustLiveFor(t, 5*leaseLength)
		slow.mustBeLost(t, ErrExpired, began.Add(leaseLength-leaseLength/driftLoss))
	})
}

func TestLeasesOfDifferentLengthsAreRenewedEachInItsTime(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, _ *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
		var all []*tenancy
		for i := range 10 {
			d := 200*time.Millisecond + time.Duration(i)*137*time.Millisecond
			all = append(all, hold(t, l, l.Client, fmt.Sprint("k", i), d))
			time.Sleep(7 * time.Millisecond)
		}
		for _, h := range all {
			h.mustLiveFor(t, time.Second)
		}
	})
}

func TestAServerThatForgetsItsScriptsLosesNoLease(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, _ *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
		var all []*tenancy
		for i := range 5 {
			all = append(all, hold(t, l, l.Client, fmt.Sprint("k", i), leaseLength))
		}
		for range 3 {
			must(t, l.Client.ScriptFlush(t.Context()).Err())
			time.Sleep(leaseLength / 3)
		}
		for _, h := range all {
			h.mustLiveFor(t, 2*leaseLength)
		}
	})
}

func TestManyLeasesAreRenewedInPipelinesInTheOrderOfTheirDeadlines(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, _ *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
		renewals := watch(l)
		const leases = 2*renewBatch + 100
		var all []*tenancy
		for i := range leases {
			all = append(all, take(t, l, l.Client, fmt.Sprintf("k%04d", i), leaseLength))
			older := time.Duration(i%7) * time.Millisecond // so they end one after the other, and are due together
			all[i].Sent, all[i].Every = all[i].Sent.Add(-older), leaseLength/4+older
		}
		for _, h := range all {
			l.Leases.Add(&h.Renewal)
		}
		time.Sleep(leaseLength/4 + 10*time.Millisecond)

		var keys []string
		var sizes []int
		for _, p := range renewals.pipelines() { // they go out side by side, each in its order
			keys, sizes = append(keys, p...), append(sizes, len(p))
			if !slices.IsSortedFunc(p, func(a, b string) int { return urgency(a) - urgency(b) }) {
				t.Error("a lease is renewed after one that has more time")
			}
		}
		slices.Sort(sizes)
		if !slices.Equal(sizes, []int{100, renewBatch, renewBatch}) {
			t.Errorf("pipelines of %v leases", sizes)
		}
		slices.Sort(keys)
		equal(t, "leases renewed", len(slices.Compact(keys)), leases)
		time.Sleep(leaseLength)
		for _, h := range all {
			h.mustLive(t)
		}
	})
}

// urgency orders the leases of the test above: the smaller ends first.
func urgency(key string) int {
	var i int
	_, _ = fmt.Sscanf(key, "k%d", &i)
	return -(i % 7)
}

func TestARemovedLeaseIsNotRenewedAndNothingIsHeardOfIt(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, b *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
		h := hold(t, l, l.Client, "k", leaseLength)
		h.mustLiveFor(t, leaseLength/2)
		renewals := watch(l)
		l.Leases.Remove(&h.Renewal)
		l.Leases.Remove(&h.Renewal)
		time.Sleep(5 * leaseLength)
		equal(t, "renewals after it", len(renewals.pipelines()), 0)
		h.mustBeUnheard(t)
		equal(t, "keys left", len(b.Mini().Keys()), 0)
	})
}

func TestALeaseRemovedWhileItsRenewalIsUnderWayIsNotHeardOf(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, b *redistest.BubbleServer, l *Link, f *redistest.Faults) {
		h := hold(t, l, l.Client, "k", leaseLength)
		renewal := f.Hold(redistest.Script(extend))
		must(t, renewal.Wait(t.Context()))
		l.Leases.Remove(&h.Renewal)
		b.Mini().Del("k")
		renewal.Release(t.Context())
		time.Sleep(5 * leaseLength)
		h.mustBeUnheard(t)
	})
}

func TestAnIdleRenewerTakesUpALease(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, _ *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
		l.Leases.Remove(&hold(t, l, l.Client, "first", leaseLength).Renewal)
		for range 3 {
			time.Sleep(100 * time.Minute)
			h := hold(t, l, l.Client, "k", leaseLength)
			h.mustLiveFor(t, 3*leaseLength)
			l.Leases.Remove(&h.Renewal)
		}
	})
}

// late takes a lease that was asked for long ago and has little time left.
func late(t *testing.T, l *Link, key string, ago time.Duration) *tenancy {
	t.Helper()
	h := take(t, l, l.Client, key, leaseLength)
	h.Sent = h.Sent.Add(-ago)
	must(t, l.Client.PExpire(t.Context(), key, leaseLength-ago).Err())
	return h
}

func TestALeaseThatWasGrantedLateIsRenewedBeforeItEnds(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, _ *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
		h := late(t, l, "k", leaseLength*4/5)
		l.Leases.Add(&h.Renewal)
		h.mustLiveFor(t, 2*leaseLength)
	})
}

func TestALeaseThatWasGrantedLateExpiresOnTimeBesideOthers(t *testing.T) {
	inLeaseBubble(t, func(t *testing.T, b *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
		hold(t, l, l.Client, "other", leaseLength)
		synctest.Wait()
		h := late(t, l, "k", leaseLength*9/10)
		b.Freeze()
		ends := time.Now().Add(l.Clock.Until(Deadline(h.Sent, leaseLength)))
		l.Leases.Add(&h.Renewal)
		time.Sleep(5 * leaseLength)
		h.mustBeLost(t, ErrExpired, ends)
		b.Thaw()
	})
}

func TestClosingARenewerEndsEverythingInSilence(t *testing.T) {
	for situation, frozen := range map[string]bool{"in peace": false, "server frozen": true} {
		t.Run(situation, func(t *testing.T) {
			inLeaseBubble(t, func(t *testing.T, b *redistest.BubbleServer, l *Link, _ *redistest.Faults) {
				h := hold(t, l, l.Client, "k", leaseLength)
				time.Sleep(leaseLength/3 - time.Millisecond)
				if frozen {
					b.Freeze()
				}
				time.Sleep(2 * time.Millisecond) // a renewal is on its way
				began := time.Now()
				l.Leases.close()
				l.Leases.close()
				took(t, began, 0)
				equal(t, "goroutines left", renewGoroutines(), 0)
				time.Sleep(5 * leaseLength)
				h.mustBeUnheard(t)
				b.Thaw()
			})
		})
	}
}

func TestClosingARenewerThatWasNeverUsedIsNothing(t *testing.T) {
	l := open(t, client(t))
	l.Leases.close()
}

// ownLeasesOnly: what a frozen master costs are the leases that it holds.
func ownLeasesOnly(t *testing.T, cluster *redistest.Cluster3) {
	const length = 900 * time.Millisecond
	c := cluster.Client(t)
	l := open(t, c)
	var frozen, others []*tenancy
	for i := range 12 {
		h := take(t, l, c, fmt.Sprint("lease", i), length)
		master, err := cluster.NodeFor(t.Context(), h.Call.Key)
		must(t, err)
		if master == 0 {
			frozen = append(frozen, h)
		} else {
			others = append(others, h)
		}
	}
	must(t, cluster.Node(0).Pause())
	defer func() { must(t, cluster.Node(0).Resume()) }()
	for _, h := range append(slices.Clone(frozen), others...) {
		h.Sent = l.Clock.Now()
		l.Leases.Add(&h.Renewal)
	}
	time.Sleep(3 * length) // real time: the servers are processes
	for _, h := range frozen {
		if errs, _ := h.lost(); len(errs) != 1 || !errors.Is(errs[0], ErrExpired) {
			t.Errorf("%s, whose master is frozen: heard %v", h.Call.Key, errs)
		}
	}
	for _, h := range others {
		if errs, _ := h.lost(); len(errs) > 0 {
			t.Errorf("%s was lost although its master answers: %v", h.Call.Key, errs)
		}
	}
}
