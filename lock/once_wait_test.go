package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

func TestAllWhoWaitGetTheResultAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		first := onceOf[string](s).later("x", 5*time.Second, "first", nil)
		synctest.Wait()
		var waiting []chan result[string]
		for range 5 {
			n := onceOf[string](s)
			for range 10 {
				waiting = append(waiting, n.later("x", 0, "another", nil))
			}
		}
		began := time.Now()
		for _, c := range append(waiting, first) {
			equal(t, "result", <-c, result[string]{"first", nil})
		}
		equal(t, "took", time.Since(began), 5*time.Second)
	})
}

func TestAWaiterWhoseMessageIsLostAsksAllTheSame(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := onceOf[string](s), onceOf[string](s)
		first := a.later("x", 5*time.Second, "first", nil)
		synctest.Wait()
		second := b.later("x", 0, "second", nil)
		time.Sleep(4900 * time.Millisecond)
		b.wire.Freeze()
		equal(t, "first", <-first, result[string]{"first", nil})
		b.wire.Cut() // with what was under way
		b.wire.Thaw()
		began := time.Now()
		equal(t, "second", <-second, result[string]{"first", nil})
		if took := time.Since(began); took > 1300*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

func TestIfTheRunnerFailsOneOfThoseWhoWaitRunsNext(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		first := onceOf[string](s).later("x", 5*time.Second, "", errTest)
		synctest.Wait()
		var waiting []chan result[string]
		for i := range 4 {
			n := onceOf[string](s)
			for range 3 {
				waiting = append(waiting, n.later("x", time.Second, fmt.Sprint("of ", i), nil))
			}
			time.Sleep(100 * time.Millisecond)
		}
		equal(t, "first", (<-first).err, errTest)
		began := time.Now()
		for _, c := range waiting {
			equal(t, "result", <-c, result[string]{"of 0", nil})
		}
		equal(t, "took", time.Since(began), time.Second)
	})
}

func TestWhatRunsElsewhereNeedNotBeWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := onceOf[int](s, WithLabel("who runs")), onceOf[int](s)
		first := a.later("x", time.Minute, 1, nil)
		time.Sleep(30 * time.Second)
		err := b.refuses("no wait", ErrInProgress, WithWait(0))
		is(t, "no wait", err, ErrInProgress)
		runs, _ := errors.AsType[*InProgressError](err)
		equal(t, "id", runs.ID, "x")
		equal(t, "label", runs.Holder.Label, "who runs")
		equal(t, "pid", runs.Holder.PID, os.Getpid())
		equal(t, "since", runs.Running, 30*time.Second)
		equal(t, "remaining", runs.Remaining > 5*time.Second && runs.Remaining <= 10*time.Second, true)
		names(t, err, `"x"`)
		is(t, "some wait", b.refuses("some wait", ErrWaitTimeout, WithWait(time.Second)), ErrWaitTimeout)
		equal(t, "the first", <-first, result[int]{1, nil})
		b.repeats("then", 1)
		v, err := b.does("x", 0, 2, nil, WithWait(0))
		equal(t, "no wait, when it is done", result[int]{v, err}, result[int]{1, nil})
	})
}

func TestCallersOfOneProcessWaitWithOneVoice(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		first := onceOf[int](s).later("x", 2*time.Minute, 1, nil)
		synctest.Wait()
		n, m := onceOf[int](s), &meter{}
		n.client.AddHook(m)
		var waiting []chan result[int]
		for range 50 {
			waiting = append(waiting, n.later("x", 0, 2, nil))
		}
		time.Sleep(5 * time.Second)
		before := m.commands.Load()
		time.Sleep(100 * time.Second)
		if n := m.commands.Load() - before; n > 130 || n < 80 {
			t.Errorf("%d commands in 100 s", n)
		}
		for _, c := range append(waiting, first) {
			equal(t, "result", <-c, result[int]{1, nil})
		}
	})
}

func TestAFunctionThatAsksForItsOwnIDIsToldSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		n := onceOf[int](s)
		for _, options := range [][]LockOption{nil, {WithReentrant()}, {WithWait(0)}} {
			v, err := n.Once.Do(t.Context(), "x", func(ctx context.Context) (int, error) {
				within, err := n.Once.Do(ctx, "y", func(ctx context.Context) (int, error) {
					return n.Once.Do(ctx, "x", func(context.Context) (int, error) { return 0, errRan }, options...)
				})
				is(t, "from within", err, ErrRecursive)
				names(t, err, `"x"`)
				return within, err
			}, options...)
			equal(t, "value", v, 0)
			is(t, "from without", err, ErrRecursive)
		}
		n.gets("after it", 1)
	})
}
