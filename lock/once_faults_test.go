package lock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// notStored fails unless r is a value that is not stored, for this reason.
func notStored[V comparable](t *testing.T, what string, r result[V], v V, why error) {
	t.Helper()
	equal(t, what+": value", r.v, v)
	is(t, what, r.err, why)
	e, ok := errors.AsType[*NotStoredError](r.err)
	if !ok || !errors.Is(r.err, ErrNotStored) || e.ID != "x" {
		t.Errorf("%s: %v does not say that x is not stored", what, r.err)
	}
}

func TestT08ARunWhoseStartHasNoAnswerIsNotBegun(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := onceOf[int](s), onceOf[int](s)
		_, _ = a.does("warm", 0, 0, nil)
		for _, options := range [][]LockOption{nil, {WithWait(0)}} {
			a.faults.LoseReply(redistest.Script(scripts.start)).Times(1)
			is(t, "answer", a.refuses("lost", ErrUnavailable, options...), ErrUnavailable)
			synctest.Wait()
			equal(t, "free at once", s.free("x"), true)
		}
		b.gets("elsewhere", 1)
		a.faults.LoseReply(redistest.Script(scripts.start)).Times(1)
		is(t, "when it is done", a.refuses("lost", ErrUnavailable), ErrUnavailable)
		time.Sleep(time.Minute) // of what is cleared up
		a.repeats("then", 1)
	})
}

func TestT08AResultWhoseStoringHasNoAnswerIsStored(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := onceOf[int](s), onceOf[int](s)
		a.faults.LoseReply(redistest.Script(scripts.store)).Times(1)
		r := <-a.later("x", time.Second, 1, nil)
		notStored(t, "lost", r, 1, ErrUnavailable)
		synctest.Wait()
		b.repeats("elsewhere", 1)
		time.Sleep(time.Minute)
		b.repeats("later", 1)
	})
}

func TestAResultIsStoredBehindTheCallersBackWhileTheLeaseLives(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := onceOf[int](s), onceOf[int](s)
		rule := a.faults.Fail(redistest.Script(scripts.store), nil)
		r := <-a.later("x", time.Second, 1, nil)
		notStored(t, "away", r, 1, ErrUnavailable)
		second := b.later("x", 0, 2, nil)
		time.Sleep(5 * time.Second)
		rule.Clear()
		equal(t, "who waits", <-second, result[int]{1, nil})
		equal(t, "told", s.told(Unreleased), 1)
	})
}

func TestAnErrorComesThroughAsItIsThoughTheLockIsNotGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := onceOf[int](s), onceOf[int](s)
		a.faults.Fail(redistest.Script(scripts.release), nil).Times(1)
		equal(t, "unreleased", <-a.later("x", time.Second, 1, errTest), result[int]{1, errTest})
		synctest.Wait() // it is tried again
		first := a.later("x", 30*time.Second, 1, errTest)
		time.Sleep(time.Second)
		s.Mini().Del("lk:x")
		b.gets("meanwhile", 2)
		equal(t, "lost", <-first, result[int]{1, errTest})
		b.repeats("then", 2)
	})
}

func TestAnUnstoredResultKeepsItsLockThoughItsStartHadNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b, c := onceOf[int](s), onceOf[int](s), onceOf[int](s)
		first := a.later("x", 1500*time.Millisecond, 1, errTest)
		synctest.Wait()
		second := b.later("x", time.Second, 2, nil)
		time.Sleep(100 * time.Millisecond)
		b.faults.LoseReply(redistest.Script(scripts.start)).Times(1)
		rule := b.faults.Fail(redistest.Script(scripts.store), nil)
		equal(t, "first", (<-first).err, errTest)
		third := c.later("x", 0, 3, nil)
		notStored(t, "second", <-second, 2, ErrUnavailable)
		time.Sleep(3 * time.Second)
		rule.Clear()
		equal(t, "third", <-third, result[int]{2, nil})
	})
}

func TestAResultThatCannotBeStoredWithinTheLeaseIsLostAndTheIDRunsAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := onceOf[int](s), onceOf[int](s)
		late := a.faults.Late(redistest.Script(scripts.store))
		r := <-a.later("x", time.Second, 1, nil)
		notStored(t, "away", r, 1, ErrUnavailable)
		began := time.Now()
		second := b.later("x", time.Second, 2, nil)
		equal(t, "the next", <-second, result[int]{2, nil})
		if took := time.Since(began); took < 8*time.Second || took > 12*time.Second {
			t.Errorf("the next one was done after %v", took)
		}
		late.Release(t.Context())
		a.repeats("though the first arrives", 2)
		must(t, b.Forget(t.Context(), "x"))
		third := b.later("x", time.Second, 3, nil)
		synctest.Wait()
		late.Release(t.Context())
		equal(t, "the third", <-third, result[int]{3, nil})
	})
}

func TestT08AForgetWhoseAnswerIsLostForgetsNoLaterRun(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := onceOf[int](s), onceOf[int](s)
		a.gets("first", 1)
		b.faults.LoseReply(redistest.Script(scripts.forget)).Times(1)
		is(t, "asking", b.Forget(t.Context(), "x"), ErrUnavailable)
		a.repeats("then", 1)
		repeat := b.faults.Repeat(redistest.Script(scripts.forget))
		must(t, b.Forget(t.Context(), "x"))
		a.gets("second", 2)
		repeat.Release(t.Context())
		b.repeats("though a forget is late", 2)
	})
}

func TestT09AStartThatArrivesLateLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := onceOf[int](s), onceOf[int](s)
		_, _ = a.does("warm", 0, 0, nil)
		for _, err := range []error{nil, errTest} {
			repeat := a.faults.Repeat(redistest.Script(scripts.start)).Times(1)
			v, got := a.does("x", 0, 1, err)
			equal(t, "the retry", result[int]{v, got}, result[int]{1, err})
			if err == nil {
				must(t, b.Forget(t.Context(), "x"))
			}
			repeat.Release(t.Context())
			equal(t, "free", s.free("x"), true)
		}
	})
}

func TestNothingRunsWhileRedisIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a := onceOf[int](s)
		a.wire.Refuse(true)
		is(t, "away", a.refuses("away", ErrUnavailable), ErrUnavailable)
		a.wire.Refuse(false)
		time.Sleep(time.Minute)
		a.gets("back", 1)
	})
}

func TestARunnerThatIsCutOffCostsOneLeaseAndOverwritesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := onceOf[int](s), onceOf[int](s)
		first := a.later("x", time.Minute, 1, nil)
		time.Sleep(time.Second)
		second := b.later("x", time.Second, 2, nil)
		a.wire.Freeze()
		began := time.Now()
		equal(t, "second", <-second, result[int]{2, nil})
		if took := time.Since(began); took > 11500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		a.wire.Thaw()
		r := <-first
		notStored(t, "first", r, 1, ErrLost)
		lost, _ := errors.AsType[*LostError](r.err)
		equal(t, "reason", lost.Reason, Taken)
		a.repeats("then", 2)
		b.repeats("and elsewhere", 2)
	})
}

func TestWhoRunsNextBeginsWithAWholeLease(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b, c := onceOf[int](s), onceOf[int](s), onceOf[int](s)
		first := a.later("x", 2*time.Second, 1, errTest)
		time.Sleep(time.Second)
		second := b.later("x", 5*time.Second, 2, nil)
		time.Sleep(100 * time.Millisecond)
		third := c.later("x", 0, 3, nil)
		equal(t, "first", (<-first).err, errTest)
		time.Sleep(time.Millisecond)
		b.wire.Freeze()
		time.Sleep(claim + time.Second)
		b.wire.Thaw()
		equal(t, "second", <-second, result[int]{2, nil})
		equal(t, "third", <-third, result[int]{2, nil})
	})
}

func TestARunnerWhoseLeaseHasEndedStoresIfNobodyElseHasBegun(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := onceOf[int](s), onceOf[int](s)
		first := a.later("x", 12*time.Second, 1, nil)
		time.Sleep(time.Second)
		a.wire.Freeze()
		time.Sleep(10800 * time.Millisecond)
		a.wire.Thaw()
		equal(t, "first", <-first, result[int]{1, nil})
		equal(t, "lost", s.told(Lost), 1)
		b.repeats("then", 1)
	})
}

func TestARunWhoseKeyIsGoneIsNotStored(t *testing.T) {
	for situation, c := range map[string]struct {
		harm   func(*server)
		reason Reason
	}{
		"DEL":            {func(s *server) { s.Mini().Del("lk:x") }, Gone},
		"another string": {func(s *server) { must(s.t, s.Mini().Set("lk:x", "theirs")) }, Overwritten},
		"a hash":         {func(s *server) { s.Mini().Del("lk:x"); s.Mini().HSet("lk:x", "f", "theirs") }, Overwritten},
		"another's": {func(s *server) {
			s.Mini().Del("lk:x")
			onceOf[int](s).gets("another's", 2)
		}, Taken},
		"another's failed": {func(s *server) {
			s.Mini().Del("lk:x")
			_, _ = onceOf[int](s).does("x", 0, 2, errTest)
		}, Gone},
	} {
		t.Run(situation, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server) {
				a := onceOf[int](s)
				first := a.later("x", time.Second, 1, nil)
				synctest.Wait()
				c.harm(s)
				before := s.raw("x")
				r := <-first
				lost, ok := errors.AsType[*LostError](r.err)
				if !ok || !errors.Is(r.err, ErrNotStored) || lost.Reason != c.reason || lost.Name != "x" {
					t.Errorf("got %v, want that it is lost: %v", r.err, c.reason)
				}
				equal(t, "value", r.v, 1)
				equal(t, "in Redis", s.raw("x"), before)
			})
		})
	}
}
