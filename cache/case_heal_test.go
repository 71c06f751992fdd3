package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
)

// featured are settings with all that comes before and after an expiry: early refresh at its
// default, and callers that wait a little for the new value.
func featured() cache.Options {
	o := settings()
	o.EarlyRefresh, o.WaitFresh = 0, 100*time.Millisecond
	return o
}

// revalidate is load for those who are told of the value they replace: its row is the version.
func (s *source) revalidate(ctx context.Context, key string, p *previous) (result, error) {
	v, err := s.load(ctx, key)
	if err != nil {
		return result{}, err
	}
	row, err := strconv.ParseUint(v[strings.LastIndexByte(v, '@')+1:], 10, 64)
	if p != nil && p.Value == v {
		return result{NotModified: true, RowVersion: row}, err
	}
	return result{Value: v, RowVersion: row}, err
}

// inFullBubble is inBubble with revalidating nodes.
func inFullBubble(t *testing.T, nodes int, o cache.Options, body func(*testing.T, *fleet)) {
	t.Helper()
	inBubble(t, 0, o, func(t *testing.T, f *fleet) {
		for range nodes {
			client, _ := f.dial()
			f.joinWith(loader.Revalidate(f.revalidate), client, o)
		}
		body(t, f)
	})
}

// glance is what one call of GetEntry got.
type glance struct {
	asked, took time.Duration
	node        *node
	key         string
	entry       cache.Entry[string]
	err         error
}

// glances reads so many times a second on each node, the keys in turn, from began to its age of d.
// It runs in a bubble.
func (f *fleet) glances(t *testing.T, perSecond int, keys []string, began time.Time, d time.Duration) []glance {
	t.Helper()
	var running sync.WaitGroup
	var mu sync.Mutex
	var all []glance
	for i := 0; time.Since(began) < d; i++ {
		for _, n := range f.nodes {
			g := glance{asked: time.Since(began), node: n, key: keys[i%len(keys)]}
			running.Go(func() {
				g.entry, g.err = n.GetEntry(t.Context(), g.key)
				g.took = time.Since(began) - g.asked
				mu.Lock()
				defer mu.Unlock()
				all = append(all, g)
			})
		}
		time.Sleep(time.Second / time.Duration(perSecond))
	}
	running.Wait()
	return all
}

// backedOff checks that attempts of 20 ms or more each are apart by a back-off that doubles from 500 ms to
// 5 s, each shortened by a fifth at most, and returns the longest that the next may be away.
func backedOff(t *testing.T, attempts []time.Duration) time.Duration {
	t.Helper()
	longest := 500 * time.Millisecond
	for i := range len(attempts) - 1 {
		if gap := attempts[i+1] - attempts[i] - 20*time.Millisecond; gap < longest*4/5-time.Millisecond {
			t.Errorf("attempt %d came %v after the end of the one before, want up to %v", i+2, gap, longest)
		}
		longest = min(2*longest, 5*time.Second)
	}
	return longest
}

// staleOnly checks that every call until d was answered with v1, in time.
func staleOnly(t *testing.T, all []glance, d, limit time.Duration) {
	t.Helper()
	for _, g := range all {
		if g.asked >= d {
			continue
		}
		if g.err != nil || g.entry.Value != value(g.key, 1) || g.took > limit {
			t.Fatalf("after %v: got %+v, %v, after %v", g.asked, g.entry, g.err, g.took)
		}
	}
}

// freshBy checks that all nodes have version 2 of all keys from some moment on.
func freshBy(t *testing.T, all []glance, by time.Duration) {
	t.Helper()
	fresh := 0
	for _, g := range all {
		if g.err != nil {
			t.Errorf("after %v: got %v", g.asked, g.err)
		}
		if g.asked >= by {
			fresh++
			if g.entry.Value != value(g.key, 2) || g.entry.Err != nil {
				t.Fatalf("after %v: got %+v, want %s", g.asked, g.entry, value(g.key, 2))
			}
		}
	}
	if fresh == 0 {
		t.Error("nobody has looked since")
	}
}

// The figure: a database that fails for 10 s under 3 nodes with 100 reads a second each of one key.
// The outage begins before the expiry, so the first attempts are early refreshes. A copy that is
// stale is believed for LocalTTL, so the other nodes see the new value that much later at the most. In a bubble.
func TestAFailingDatabaseIsHiddenAndLeftAloneUntilItHeals(t *testing.T) {
	o := settings()
	o.EarlyRefresh = 100 // begins it in the last fifth of the TTL
	inFullBubble(t, 3, o, func(t *testing.T, f *fleet) {
		for _, n := range f.nodes {
			gets(t, n, "k", value("k", 1))
		}
		time.Sleep(9 * time.Second)
		f.write("k")
		out := &outage{began: time.Now()}
		f.query = out.query
		heals := time.AfterFunc(10*time.Second, out.recover)
		defer heals.Stop()
		all := f.glances(t, 100, []string{"k"}, out.began, 17*time.Second)
		staleOnly(t, all, 10*time.Second, 5*time.Millisecond)

		attempts := out.made()
		failed := len(attemptsBefore(attempts, 10*time.Second))
		if failed < 4 || failed > 10 || failed == len(attempts) {
			t.Fatalf("%d attempts in 10 s of %d, want about one a second, falling", failed, len(attempts))
		}
		last := backedOff(t, attempts[:failed])
		within(t, "from healing to the next attempt", attempts[failed]-10*time.Second, last)
		freshBy(t, all, attempts[failed]+20*time.Millisecond+time.Second)
		equal(t, "loads at once", f.peak(), 1)
		equal(t, "failures", f.sum(func(s cache.Stats) int64 { return s.Failures }), int64(failed))
		if f.sum(func(s cache.Stats) int64 { return s.EarlyRefreshes }) == 0 {
			t.Error("no attempt was an early refresh")
		}
	})
}

var (
	errRejected = errors.New("the value did not pass the check")
	errTooMany  = errors.New("the database is overloaded")
)

// database rejects every value while it is ill, and fails when it is asked for too many at once.
type database struct {
	limit   int64
	began   time.Time
	ill     atomic.Bool
	running atomic.Int64
	most    atomic.Int64
	refused atomic.Int64

	mu       sync.Mutex
	attempts map[string][]time.Duration
}

func (d *database) query(ctx context.Context, key string, _ int) error {
	d.mu.Lock()
	d.attempts[key] = append(d.attempts[key], time.Since(d.began))
	d.mu.Unlock()
	now := d.running.Add(1)
	defer d.running.Add(-1)
	raise(&d.most, now)
	_ = pass(ctx, 200*time.Millisecond)
	switch {
	case now > d.limit:
		d.refused.Add(1)
		return errTooMany
	case d.ill.Load():
		return errRejected
	}
	return nil
}

// attemptsBefore are when a key was asked for until then.
func (d *database) attemptsBefore(key string, until time.Duration) []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return attemptsBefore(d.attempts[key], until)
}

func attemptsBefore(all []time.Duration, until time.Duration) []time.Duration {
	n, _ := slices.BinarySearch(all, until)
	return slices.Clone(all[:n])
}

// made are the attempts so far.
func (o *outage) made() []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.attempts)
}

// The check stands in the loader, so that what it rejects is a failure: good stale values stay. (A
// value that only cannot be encoded is another thing: it is good, it goes to those who asked, and
// the old one is dropped.) The case has 500 reads a second on each of 5 nodes, 100 keys, and a
// source that bears 50 calls; so has the soak. The ordinary run has an eighth of each, for 2 s more
// than the longest back-off instead of 20 s. The traffic is never cut. A load takes 200 ms, so that
// the first reads already are more than the source bears. In a bubble.
func TestB119_RejectedValuesCostTheGoodOnesNothing(t *testing.T) {
	perSecond, ill := soak(60, 500), time.Duration(soak(7, 20))*time.Second
	keys := make([]string, soak(12, 100))
	o := settings()
	o.StaleWhileRevalidate, o.EarlyRefresh = time.Minute, 0
	inFullBubble(t, 5, o, func(t *testing.T, f *fleet) {
		for i := range keys {
			keys[i] = fmt.Sprint("k", i)
			gets(t, f.nodes[i%5], keys[i], value(keys[i], 1))
			f.write(keys[i])
		}
		time.Sleep(11 * time.Second)
		d := &database{limit: int64(soak(6, 50)), began: time.Now(), attempts: map[string][]time.Duration{}}
		d.ill.Store(true)
		f.query = d.query
		heals := time.AfterFunc(ill, func() { d.ill.Store(false) })
		defer heals.Stop()
		all := f.glances(t, perSecond, keys, d.began, ill-10*time.Millisecond)
		staleOnly(t, all, ill, 5*time.Millisecond)
		for _, k := range keys {
			f.stores(k, value(k, 1))
		}
		freshBy(t, f.glances(t, perSecond, keys, d.began, ill+11*time.Second), ill+10*time.Second)

		equal(t, "loads at once of a key", f.peak(), 1)
		for _, k := range keys {
			failed := d.attemptsBefore(k, ill)
			backedOff(t, failed)
			if len(failed) < 3 {
				t.Errorf("%s: %d attempts, want some", k, len(failed))
			}
		}
		equal(t, "the source was overloaded for once", d.refused.Load() > 0, true)
		t.Logf("%d calls at once at the most, %d refused for that", d.most.Load(), d.refused.Load())
	})
}

// The same as without these features, but that a caller may wait for WaitFresh while an attempt
// runs. In a bubble, with half of the reads.
func TestB45_AFailingLoaderIsHiddenFromCallersThatWaitALittle(t *testing.T) {
	inFullBubble(t, 3, featured(), func(t *testing.T, f *fleet) {
		for _, n := range f.nodes {
			gets(t, n, "k", value("k", 1))
		}
		time.Sleep(11 * time.Second)
		f.write("k")
		began := time.Now()
		f.query = func(ctx context.Context, _ string, _ int) error {
			switch now := time.Since(began); {
			case now >= 10*time.Second:
				return pass(ctx, 200*time.Millisecond)
			case now >= 5*time.Second:
				_ = pass(ctx, time.Second)
			}
			return errSourceDown
		}
		all := f.glances(t, 50, []string{"k"}, began, 10*time.Second)
		attempts := f.queries() - 1
		staleOnly(t, all, 10*time.Second, 105*time.Millisecond)
		waited := 0
		for _, g := range all {
			if g.took > 5*time.Millisecond {
				waited++
			}
		}
		if waited > len(all)/2 {
			t.Errorf("%d of %d callers waited", waited, len(all))
		}
		if attempts < 3 || attempts > 10 {
			t.Errorf("%d attempts in 10 s, want about one a second or fewer", attempts)
		}
		f.stores("k", value("k", 1))
		freshBy(t, f.glances(t, 50, []string{"k"}, began, 17*time.Second), 16*time.Second+300*time.Millisecond)
		equal(t, "loads at once", f.peak(), 1)
	})
}

// Nothing is at hand, so nobody is patient: the same as without these features, for 7 s.
func TestB57_AFailingSourceOfAColdKeyIsLeftAloneByAllMeansOfLoading(t *testing.T) {
	inFullBubble(t, 3, featured(), func(t *testing.T, f *fleet) {
		out := &outage{began: time.Now()}
		f.query = out.query
		heals := time.AfterFunc(7*time.Second, out.recover)
		defer heals.Stop()
		recovered := time.Duration(0)
		for _, g := range f.glances(t, 100, []string{"k"}, out.began, 13*time.Second) {
			_, refused := errors.AsType[*cache.BackoffError](g.err)
			switch {
			case g.took > 20*time.Millisecond:
				t.Fatalf("after %v: got %v after %v", g.asked, g.err, g.took)
			case g.err == nil && (recovered == 0 || g.asked < recovered):
				recovered = g.asked
			case g.err != nil && !refused && !errors.Is(g.err, errSourceDown):
				t.Errorf("after %v: got %v", g.asked, g.err)
			}
		}
		for _, n := range f.nodes {
			gets(t, n, "k", value("k", 1))
		}
		attempts := out.made()
		backedOff(t, attempts)
		equal(t, "attempts are few", len(attempts) > 3 && len(attempts) < 8, true)
		equal(t, "it has recovered", recovered > 7*time.Second-20*time.Millisecond && recovered < 12*time.Second+50*time.Millisecond, true)
		equal(t, "loads at once", f.peak(), 1)
	})
}

// The value is stale, so the load that runs finds it not modified; then it is, and deleted. What is
// to be kept in Redis by that load is gone, and does not come back from its memory either. Nor is
// anything stale at hand any more when the patience of the first callers ends: they may wait for
// the new value then. In a bubble.
func TestB58_ADeleteDuringALoadThatFindsNothingModifiedKeepsTheOldRowOut(t *testing.T) {
	inFullBubble(t, 1, featured(), func(t *testing.T, f *fleet) {
		n := f.nodes[0]
		gets(t, n, "k", value("k", 1))
		time.Sleep(11 * time.Second)
		f.query = takes(300 * time.Millisecond)
		before := start(t.Context(), 10, "k", n)
		time.Sleep(50 * time.Millisecond)
		v2 := f.write("k")
		must(t, n.Delete(t.Context(), "k"))
		f.never("k", value("k", 1))
		time.Sleep(10 * time.Millisecond)
		soon := start(t.Context(), 10, "k", n)
		time.Sleep(290 * time.Millisecond)
		later := start(t.Context(), 10, "k", n)
		for _, g := range before.wait() {
			if g.err != nil || g.value != value("k", 1) && g.value != v2 || g.took > 400*time.Millisecond {
				t.Errorf("a caller from before got %q, %v after %v", g.value, g.err, g.took)
			}
		}
		allGet(t, soon.wait(), v2, 300*time.Millisecond)
		allGet(t, later.wait(), v2, 10*time.Millisecond)
		f.stores("k", v2)
		equal(t, "loads", f.queries(), 3)
		equal(t, "refused commits", f.sum(func(s cache.Stats) int64 { return s.Refused }), 1)
	})
}

// Forty of the thousand rounds.
func TestB59_ADeleteOnOneNodeRevokesAPatientLoadOnAnother(t *testing.T) {
	inFullBubble(t, 3, featured(), func(t *testing.T, f *fleet) {
		f.query = takes(300 * time.Millisecond)
		f.deleteEachRound(t, func(key string, between bool) bool { return f.deleteDuringLoad(t, key, between) })
	})
}

// Forty rounds of a key that is stale on all nodes, so that the load on A finds it not modified.
func TestB59_ADeleteOnOneNodeRevokesARevalidationOnAnother(t *testing.T) {
	inFullBubble(t, 3, featured(), func(t *testing.T, f *fleet) {
		f.query = takes(300 * time.Millisecond)
		f.deleteEachRound(t, func(key string, between bool) bool { return f.deleteDuringRevalidation(t, key, between) })
	})
}

// deleteEachRound counts the rounds that revoked a load, and the commits that were refused for it.
// It runs in a bubble.
func (f *fleet) deleteEachRound(t *testing.T, round func(key string, between bool) bool) {
	t.Helper()
	revoked := int64(0)
	for i := range soak(40, 1000) {
		if round(fmt.Sprint("k", i), i%4 == 0) {
			revoked++
		}
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	equal(t, "refused commits", f.sum(func(s cache.Stats) int64 { return s.Refused }), revoked)
}

// deleteDuringRevalidation is deleteDuringLoad of a stale entry, in a bubble. The caller on A is
// served the stale value after WaitFresh, and A believes for LocalTTL that it may serve it: so only
// the others are asked before that is over.
func (f *fleet) deleteDuringRevalidation(t *testing.T, key string, between bool) (revoked bool) {
	v1 := value(key, 1)
	for _, n := range f.nodes {
		gets(t, n, key, v1)
	}
	time.Sleep(11 * time.Second)
	a, b, began := f.nodes[0], f.nodes[1], time.Now()
	offset := time.Duration(rand.Int64N(int64(350 * time.Millisecond)))
	held := a.faults.Hold(isCommit).Times(1)
	if between {
		offset = 300*time.Millisecond + offset/4
	} else {
		held.Clear()
	}
	before := f.queries(key)
	first := start(t.Context(), 1, key, a)
	time.Sleep(offset)
	equal(t, "loads that found it not modified", f.queries(key)-before, 1)
	v2 := f.write(key)
	must(t, b.Delete(t.Context(), key))
	f.never(key, v1)
	held.Release(t.Context())

	time.Sleep(400*time.Millisecond - offset)
	for _, n := range f.nodes[1:] {
		gets(t, n, key, v2)
	}
	if g := first.wait()[0]; g.err != nil || g.value != v1 && g.value != v2 {
		t.Errorf("delete after %v: the first caller got %q, %v", offset, g.value, g.err)
	}
	time.Sleep(2*time.Second - time.Since(began))
	for _, n := range f.nodes {
		gets(t, n, key, v2)
	}
	f.stores(key, v2)
	return between || offset < 300*time.Millisecond
}
