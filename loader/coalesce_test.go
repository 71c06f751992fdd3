package loader_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/loader"
)

const linger = 10 * time.Millisecond

type query = func(context.Context, []int) (map[int]string, error)

// table answers every key with "v" and the key, and remembers what it was asked, and when.
type table struct {
	mu    sync.Mutex
	began time.Time
	asked [][]int
	at    []time.Duration
}

func newTable() *table { return &table{began: time.Now()} }

func (q *table) query(_ context.Context, keys []int) (map[int]string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked = append(q.asked, slices.Clone(keys))
	q.at = append(q.at, time.Since(q.began))
	values := make(map[int]string)
	for _, k := range keys {
		values[k] = fmt.Sprint("v", k)
	}
	return values, nil
}

func (q *table) expect(t *testing.T, asked ...[]int) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if !reflect.DeepEqual(q.asked, asked) {
		t.Errorf("asked for %v, want %v", q.asked, asked)
	}
}

func (q *table) expectAt(t *testing.T, at ...time.Duration) {
	t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	if !slices.Equal(q.at, at) {
		t.Errorf("asked at %v, want %v", q.at, at)
	}
}

// pending is a load that has been started in a bubble.
type pending struct {
	outcome
	ended chan struct{}
}

// begin starts a load and lets the bubble settle, so that loads arrive in the order of the calls.
func begin(ctx context.Context, l loader.Loader[int, string], key int) *pending {
	p := &pending{ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.value, p.err = l.Load(ctx, key)
	}()
	synctest.Wait()
	return p
}

func (p *pending) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// loads starts a load of each key, one after the other, and waits for all of them.
func loads(t *testing.T, l loader.Loader[int, string], keys ...int) []outcome {
	t.Helper()
	var started []*pending
	for _, k := range keys {
		started = append(started, begin(t.Context(), l, k))
	}
	var got []outcome
	for _, p := range started {
		<-p.ended
		got = append(got, p.outcome)
	}
	return got
}

func expect(t *testing.T, got []outcome, want ...outcome) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func values(vs ...string) (want []outcome) {
	for _, v := range vs {
		want = append(want, outcome{value: v})
	}
	return want
}

func TestCoalesce_KeysThatComeWithinTheLingerAreOneBatchInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTable()
		l := loader.Coalesce(q.query, 100, linger)
		expect(t, loads(t, l, 3, 1, 2), values("v3", "v1", "v2")...)
		q.expect(t, []int{3, 1, 2})
		q.expectAt(t, linger)
	})
}

func TestCoalesce_LaterKeysDoNotProlongTheLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTable()
		l := loader.Coalesce(q.query, 100, linger)
		first := begin(t.Context(), l, 1)
		time.Sleep(linger - 1)
		second := begin(t.Context(), l, 2)
		<-first.ended
		<-second.ended
		expect(t, loads(t, l, 3), values("v3")...)
		q.expect(t, []int{1, 2}, []int{3})
		q.expectAt(t, linger, 2*linger)
	})
}

func TestCoalesce_AFullBatchGoesAtOnceAndTheNextLingersAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTable()
		l := loader.Coalesce(q.query, 2, linger)
		one := begin(t.Context(), l, 1)
		time.Sleep(linger / 2)
		rest := loads(t, l, 2, 3)
		expect(t, append(rest, one.outcome), values("v2", "v3", "v1")...)
		q.expect(t, []int{1, 2}, []int{3})
		q.expectAt(t, linger/2, linger/2+linger)
	})
}

func TestCoalesce_EqualKeysAreAskedForOnceAndFillOnePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTable()
		l := loader.Coalesce(q.query, 2, linger)
		expect(t, loads(t, l, 1, 1, 1, 2), values("v1", "v1", "v1", "v2")...)
		q.expect(t, []int{1, 2})
		q.expectAt(t, 0)
	})
}

func TestCoalesce_WithoutLingerEveryKeyGoesAloneAndAtOnce(t *testing.T) {
	for _, linger := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			q := newTable()
			l := loader.Coalesce(q.query, 100, linger)
			var wg sync.WaitGroup
			for k := range 50 { // beside each other
				wg.Go(func() { l.Load(t.Context(), k) })
			}
			wg.Wait()
			if len(q.asked) != 50 {
				t.Errorf("50 keys went in %d batches", len(q.asked))
			}
			q.expectAt(t, make([]time.Duration, 50)...)
		})
	}
}

func TestCoalesce_WithoutMaxBatchOnlyTheLingerEndsABatch(t *testing.T) {
	for _, maxBatch := range []int{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			q := newTable()
			l := loader.Coalesce(q.query, maxBatch, linger)
			var keys []int
			for k := range 500 {
				keys = append(keys, k)
			}
			loads(t, l, keys...)
			q.expect(t, keys)
			q.expectAt(t, linger)
		})
	}
}

// Whoever fills or leaves a batch in the very moment in which its linger ends is a match for the
// timer, which may have fired already.
func TestCoalesce_ABatchGoesOnceWhenItsLingerEndsAsItIsFilledOrLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 300 {
			q := newTable()
			l := loader.Coalesce(q.query, 2, linger)
			ctx, cancel := context.WithTimeout(t.Context(), linger)
			var wg sync.WaitGroup
			wg.Go(func() { l.Load(ctx, 1) })
			wg.Go(func() {
				time.Sleep(linger)
				if v, err := l.Load(t.Context(), 2); v != "v2" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
			wg.Wait()
			cancel()
			if asked := slices.Sorted(slices.Values(slices.Concat(q.asked...))); len(slices.Compact(slices.Clone(asked))) != len(asked) {
				t.Errorf("asked for %v", q.asked)
			}
		}
	})
}

func TestCoalesce_BatchesRunAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loader.Coalesce(func(_ context.Context, keys []int) (map[int]string, error) {
			time.Sleep(time.Hour)
			return map[int]string{keys[0]: "v"}, nil
		}, 1, linger)
		began := time.Now()
		loads(t, l, 1, 2, 3)
		if took := time.Since(began); took != time.Hour {
			t.Errorf("three batches of an hour took %v", took)
		}
	})
}

func TestCoalesce_NilGivesANilLoader(t *testing.T) {
	if l := loader.Coalesce[int, string](nil, 1, linger); l != nil {
		t.Errorf("got %v, want nil", l)
	}
}

func TestCoalesce_TellsEachCallerWhatBecameOfItsKey(t *testing.T) {
	odd, down := errors.New("odd"), errors.New("down")
	v := map[int]string{1: "v1", 2: "v2"}
	two := loader.KeyErrors[int]{2: odd}
	whole := func(err error) []outcome { return []outcome{{err: err}, {err: err}, {err: err}} }
	notFound := outcome{err: loader.ErrNotFound}
	both := errors.Join(two, down)
	ofOtherKeys := loader.KeyErrors[string]{"2": odd}

	for _, tc := range []struct {
		situation string
		values    map[int]string
		err       error
		want      []outcome
	}{
		{"one is missing", v, nil, []outcome{{value: "v1"}, {value: "v2"}, notFound}},
		{"no map", nil, nil, whole(loader.ErrNotFound)},
		{"keys nobody asked for", map[int]string{7: "v7"}, nil, whole(loader.ErrNotFound)},
		{"one failed", v, two, []outcome{{value: "v1"}, {err: odd}, notFound}},
		{"one failed, wrapped", v, fmt.Errorf("users: %w", two), []outcome{{value: "v1"}, {err: odd}, notFound}},
		{"one failed as not found", v, loader.KeyErrors[int]{1: loader.ErrNotFound}, []outcome{notFound, {value: "v2"}, notFound}},
		{"a nil error of a key", v, loader.KeyErrors[int]{2: nil}, []outcome{{value: "v1"}, {value: "v2"}, notFound}},
		{"no key failed", v, loader.KeyErrors[int](nil), []outcome{{value: "v1"}, {value: "v2"}, notFound}},
		{"all failed", v, down, whole(down)},
		{"one failed, and something else", v, both, whole(both)},
		{"errors of other keys", v, ofOtherKeys, whole(ofOtherKeys)},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := loader.Coalesce(func(context.Context, []int) (map[int]string, error) { return tc.values, tc.err }, 3, linger)
				expect(t, loads(t, l, 1, 2, 3), tc.want...)
			})
		})
	}
}

func TestKeyErrors_TheTextCountsTheKeysThatFailed(t *testing.T) {
	err := loader.KeyErrors[int]{1: io.EOF, 2: nil, 3: errors.New("secret")}
	if got, want := err.Error(), "loader: failed keys in a batch: 2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCoalesce_EveryCallerSharesOnePanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loader.Coalesce(func(context.Context, []int) (map[int]string, error) { panic(io.EOF) }, 100, linger)
		got := loads(t, l, 1, 2)
		p, ok := errors.AsType[*loader.PanicError](got[0].err)
		if !ok || p.Value != io.EOF || got[1].err != got[0].err {
			t.Errorf("got %v, want one *PanicError twice", got)
		}
	})
}

func TestCoalesce_AGoexitBecomesAnErrorOfEveryKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loader.Coalesce(func(context.Context, []int) (map[int]string, error) { runtime.Goexit(); return nil, nil }, 100, linger)
		expect(t, loads(t, l, 1, 2), outcome{err: loader.ErrGoexit}, outcome{err: loader.ErrGoexit})
	})
}

// broken is an error of which a nil pointer may be returned by mistake.
type broken struct{ cause error }

func (b *broken) Error() string { return b.cause.Error() }
func (b *broken) Unwrap() error { return b.cause }

func TestCoalesce_AnErrorWhoseMethodsPanicHarmsNobody(t *testing.T) {
	var none *broken
	for situation, err := range map[string]error{
		"of the batch": none,
		"of a key":     loader.KeyErrors[int]{1: none},
		"around keys":  fmt.Errorf("users: %w", none),
	} {
		t.Run(situation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := loader.Coalesce(func(context.Context, []int) (map[int]string, error) { return nil, err }, 100, linger)
				got := loads(t, l, 1)
				if _, ok := errors.AsType[*loader.PanicError](got[0].err); !ok {
					t.Errorf("got %v, want a *PanicError", got[0].err)
				}
			})
		})
	}
}

type traceID struct{}

func TestCoalesce_TheContextHasTheValuesOfTheFirstCallerAndNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got context.Context
		l := loader.Coalesce(func(ctx context.Context, _ []int) (map[int]string, error) {
			got = ctx
			return nil, ctx.Err()
		}, 2, linger)
		first, cancel := context.WithTimeout(context.WithValue(t.Context(), traceID{}, "first"), time.Second)
		defer cancel()
		one := begin(first, l, 1)
		two := begin(context.WithValue(t.Context(), traceID{}, "second"), l, 2)
		<-one.ended
		<-two.ended
		if id := got.Value(traceID{}); id != "first" {
			t.Errorf("the value is of %v", id)
		}
		if d, ok := got.Deadline(); ok {
			t.Errorf("there is a deadline: %v", d)
		}
	})
}

// answerAfter is a query that needs a while and obeys its context; left, with room for one, gets the reason.
func answerAfter(d time.Duration, left chan<- error) query {
	return func(ctx context.Context, keys []int) (map[int]string, error) {
		select {
		case <-time.After(d):
			return new(table).query(ctx, keys)
		case <-ctx.Done():
			left <- context.Cause(ctx)
			return nil, ctx.Err()
		}
	}
}

func TestCoalesce_ACallerThatLeavesEndsItsOwnWaitOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan error, 1)
		l := loader.Coalesce(answerAfter(time.Second, left), 2, linger)
		ctx, cancel := context.WithCancel(t.Context())
		first, same, other := begin(ctx, l, 1), begin(t.Context(), l, 1), begin(t.Context(), l, 2)
		cancel()
		synctest.Wait()
		if !first.over() || first.err != context.Canceled {
			t.Errorf("the caller that left got %v", first.outcome)
		}
		<-same.ended
		<-other.ended
		expect(t, []outcome{same.outcome, other.outcome}, values("v1", "v2")...)
		if len(left) > 0 {
			t.Errorf("the batch was cancelled: %v", <-left)
		}
	})
}

func TestCoalesce_TheBatchIsCancelledWithTheCauseOfTheLastCallerToLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := make(chan error, 1)
		l := loader.Coalesce(answerAfter(time.Hour, left), 2, linger)
		early, late := errors.New("early"), errors.New("late")
		ctx1, cancel1 := context.WithTimeoutCause(t.Context(), time.Second, early)
		defer cancel1()
		ctx2, cancel2 := context.WithTimeoutCause(t.Context(), 2*time.Second, late)
		defer cancel2()
		two, one := begin(ctx2, l, 2), begin(ctx1, l, 1)
		<-one.ended
		synctest.Wait()
		if len(left) > 0 {
			t.Errorf("cancelled by the first to leave: %v", <-left)
		}
		<-two.ended
		if cause := <-left; cause != late {
			t.Errorf("the cause is %v, want %v", cause, late)
		}
		if one.err != context.DeadlineExceeded || two.err != context.DeadlineExceeded {
			t.Errorf("the callers got %v and %v", one.err, two.err)
		}
	})
}

func TestCoalesce_AKeyThatNobodyWaitsForAnyMoreIsNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTable()
		l := loader.Coalesce(q.query, 3, linger)
		ctx, cancel := context.WithCancel(t.Context())
		left := []*pending{begin(ctx, l, 1), begin(ctx, l, 2), begin(ctx, l, 2)}
		stays := begin(t.Context(), l, 1)
		cancel()
		for _, p := range left {
			<-p.ended
		}
		expect(t, append(loads(t, l, 3, 2), stays.outcome), values("v3", "v2", "v1")...)
		q.expect(t, []int{1, 3, 2})
		q.expectAt(t, 0)
	})
}

func TestCoalesce_ABatchThatAllHaveLeftDoesNotGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTable()
		l := loader.Coalesce(q.query, 100, linger)
		ctx, cancel := context.WithTimeout(t.Context(), linger/2)
		defer cancel()
		<-begin(ctx, l, 1).ended
		loads(t, l, 2)
		q.expect(t, []int{2})
		q.expectAt(t, linger/2+linger)
	})
}

func TestCoalesce_ACallerWhoseContextHasEndedAsksForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTable()
		l := loader.Coalesce(q.query, 1, linger)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		p := begin(ctx, l, 1)
		<-p.ended
		if p.err != context.Canceled {
			t.Errorf("got %v", p.err)
		}
		q.expect(t)
	})
}

func TestCoalesce_TheSliceBelongsToTheQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loader.Coalesce(func(_ context.Context, keys []int) (map[int]string, error) {
			found := map[int]string{1: "v1", 2: "v2"}
			for range 100 { // while a caller leaves
				time.Sleep(linger)
				slices.Reverse(keys)
			}
			clear(keys)
			return found, nil
		}, 2, linger)
		ctx, cancel := context.WithTimeout(t.Context(), 5*linger)
		defer cancel()
		left := begin(ctx, l, 1)
		expect(t, loads(t, l, 2), values("v2")...)
		<-left.ended
	})
}

func TestCoalesce_AKeyThatCannotBeHashedHarmsItsCallerOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		batches := 0
		l := loader.Coalesce(func(_ context.Context, keys []any) (map[any]string, error) {
			batches++
			return map[any]string{keys[0]: "v"}, nil
		}, 2, linger)
		for range 2 {
			loader.Call(t.Context(), l, any([]int{1}), nil, func(_ loader.Result[string], err error) {
				if _, ok := errors.AsType[*loader.PanicError](err); !ok {
					t.Errorf("got %v, want a *PanicError", err)
				}
			})
		}
		time.Sleep(2 * linger)
		if v, err := l.Load(t.Context(), 1); v != "v" || err != nil {
			t.Errorf("the next caller got %q, %v", v, err)
		}
		if batches != 1 {
			t.Errorf("%d batches went, want 1", batches)
		}
	})
}

// Callers that come, wait and leave at random get the answer to their own question or the end of
// their own context; no batch is too large or asks twice for a key.
func TestCoalesce_NoAnswerGetsLostAmongCallersThatComeAndLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxBatch = 7
		l := loader.Coalesce(func(ctx context.Context, keys []int) (map[int]string, error) {
			sorted := slices.Compact(slices.Sorted(slices.Values(keys)))
			if len(keys) == 0 || len(keys) > maxBatch || len(sorted) != len(keys) {
				t.Errorf("a batch of %v", keys)
			}
			time.Sleep(rand.N(linger))
			return new(table).query(ctx, keys)
		}, maxBatch, linger)
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() {
				time.Sleep(rand.N(20 * linger))
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(4*linger))
				defer cancel()
				key := rand.N(40)
				v, err := l.Load(ctx, key)
				if v != fmt.Sprint("v", key) && (v != "" || err != context.DeadlineExceeded || ctx.Err() == nil) {
					t.Errorf("key %d: got %q, %v", key, v, err)
				}
			})
		}
		wg.Wait()
	})
}
