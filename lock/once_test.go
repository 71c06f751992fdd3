package lock

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// payment is a result with some structure.
type payment struct {
	Order int64
	State string
}

func TestAFunctionRunsOncePerIDWithinTheWindow(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		m := &meter{}
		a, b := onceOf[payment](s, WithWindow(time.Hour)), onceOf[payment](s, WithWindow(time.Hour))
		b.client.AddHook(m)
		_, _ = b.does("warm", 0, payment{}, nil)
		before := m.commands.Load()
		_, _ = b.does("y", 0, payment{}, nil)
		equal(t, "commands of a run", m.commands.Load()-before, 2)
		paid := payment{10086, "paid"}
		a.gets("first", paid)
		time.Sleep(time.Hour - time.Second)
		b.repeats("elsewhere", paid) // and learns the time
		before = m.commands.Load()
		b.repeats("again", paid)
		equal(t, "commands of a repeat", m.commands.Load()-before, 1)
		a.repeats("here", paid)
		equal(t, "told", s.told(Repeated), 3)
		b.gets("another id's", paid)
		time.Sleep(2 * time.Second)
		b.gets("after the window", payment{10086, "paid again"})
		equal(t, "runs", a.runs.Load()+b.runs.Load(), 2+2)
	})
}

func TestWhatFailsIsNotDoneAndCanBeTriedAtOnce(t *testing.T) {
	for situation, fail := range map[string]func() error{
		"error":  func() error { return errTest },
		"panic":  func() error { panic(errTest) },
		"Goexit": func() error { runtime.Goexit(); return nil },
	} {
		t.Run(situation, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server) {
				a, b := onceOf[int](s), onceOf[int](s)
				var got result[int]
				var panicked any
				var over sync.WaitGroup
				over.Go(func() {
					defer func() { panicked = recover() }()
					got.v, got.err = a.Once.Do(t.Context(), "x", func(context.Context) (int, error) { return 7, fail() })
				})
				over.Wait()
				switch situation {
				case "error":
					equal(t, "value", got.v, 7)
					equal(t, "error", got.err, errTest)
				case "panic":
					equal(t, "panic", panicked, any(errTest))
				}
				equal(t, "free", s.free("x"), true)
				b.gets("then", 1)
				equal(t, "runs", b.runs.Load(), 1)
			})
		})
	}
}

func TestTheContextOfARunIsThatOfItsLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		n := onceOf[int64](s)
		fence, err := n.Once.Do(t.Context(), "x", func(ctx context.Context) (int64, error) {
			l, ok := FromContext(ctx)
			equal(t, "there is one", ok && l.Valid(), true)
			s.Mini().Del("lk:x")
			<-ctx.Done()
			is(t, "cause", context.Cause(ctx), ErrLost)
			return l.Fence(), context.Cause(ctx)
		})
		is(t, "error", err, ErrLost)
		equal(t, "fence", fence > 0, true)
		ctx, cancel := context.WithCancel(t.Context())
		_, err = n.Once.Do(ctx, "x", func(ctx context.Context) (int64, error) {
			cancel()
			<-ctx.Done()
			return 1, nil
		})
		must(t, err)
		n.repeats("though the caller has left", 1)
	})
}

func TestCloseWaitsForWhatRuns(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		n, other := onceOf[int](s), onceOf[int](s)
		first := n.later("x", 25*time.Second, 1, nil)
		synctest.Wait()
		second := n.later("x", 0, 2, nil)
		synctest.Wait()
		began := time.Now()
		closed := make(chan error)
		go func() { closed <- n.Once.Close() }()
		is(t, "who waits", (<-second).err, ErrClosed)
		is(t, "who comes", n.refuses("who comes", ErrClosed), ErrClosed)
		is(t, "who asks to forget", n.Forget(t.Context(), "x"), ErrClosed)
		equal(t, "took them", time.Since(began), 0)
		is(t, "others", other.refuses("others", ErrInProgress, WithWait(0)), ErrInProgress)
		must(t, <-closed)
		equal(t, "took", time.Since(began), 25*time.Second)
		equal(t, "first", <-first, result[int]{1, nil})
		other.repeats("others then", 1)
		must(t, n.Once.Close())
	})
}

func TestAnIDThatIsForgottenRunsAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := onceOf[int](s), onceOf[int](s)
		must(t, b.Forget(t.Context(), "x")) // nothing is there
		a.gets("first", 1)
		must(t, b.Forget(t.Context(), "x"))
		must(t, b.Forget(t.Context(), "x"))
		equal(t, "free", s.free("x"), true)
		second := a.later("x", time.Second, 2, nil)
		synctest.Wait()
		is(t, "while it runs", b.Forget(t.Context(), "x"), ErrInProgress)
		equal(t, "second", <-second, result[int]{2, nil})
		b.repeats("then", 2)
	})
}

func TestOptionsOfAOnceAreChecked(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		n := s.node()
		for _, d := range []time.Duration{0, -1, time.Millisecond, 400 * 24 * time.Hour} {
			_, err := NewOnce[int](n.client, WithWindow(d), WithPrefix("?"), WithLease(1))
			names(t, err, "WithWindow")
			names(t, err, "WithPrefix")
			names(t, err, "WithLease")
		}
		_, err := New(n.client, WithWindow(time.Hour), WithLease(1))
		names(t, err, "WithWindow")
		names(t, err, "WithLease")

		o, err := NewOnce[int](n.client)
		must(t, err)
		_, err = NewOnce[string](n.client)
		names(t, err, "once:")
		same, err := NewOnce[int](n.client)
		must(t, err)
		must(t, errors.Join(o.Close(), same.Close()))
		again, err := NewOnce[string](n.client)
		must(t, err)
		for _, id := range []string{"", strings.Repeat("x", 1025)} {
			_, err = again.Do(t.Context(), id, func(context.Context) (string, error) { return "", errRan })
			names(t, err, "name")
		}
		_, err = again.Do(t.Context(), "x", func(context.Context) (string, error) { return "", errRan }, WithLease(1))
		names(t, err, "WithLease")
		must(t, again.Close())
	})
}

func TestTheDefaultsOfAOnceAreAsTheyAreDescribed(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		o, err := NewOnce[int](s.Client(t))
		must(t, err)
		defer o.Close()
		_, err = o.Do(t.Context(), "x", func(context.Context) (int, error) { return 1, nil })
		must(t, err)
		equal(t, "lifetime", s.Mini().TTL("once:x"), 24*time.Hour)
	})
}

func TestAFullServerRunsNothingNewAndStoresWhatHasRun(t *testing.T) {
	s := redistest.RealOnly(t, "--maxmemory-policy", "noeviction")
	c := s.Client(t)
	o, err := NewOnce[string](c)
	must(t, err)
	t.Cleanup(func() { must(t, o.Close()) })
	_, err = o.Do(t.Context(), "x", func(ctx context.Context) (string, error) {
		return strings.Repeat("r", 10_000), c.ConfigSet(ctx, "maxmemory", "1").Err()
	})
	must(t, err)
	_, err = o.Do(t.Context(), "y", func(context.Context) (string, error) { return "", errRan })
	is(t, "another", err, ErrUnavailable)
	names(t, err, "OOM")
	v, err := o.Do(t.Context(), "x", func(context.Context) (string, error) { return "", errRan })
	must(t, err)
	equal(t, "length", len(v), 10_000)
}
