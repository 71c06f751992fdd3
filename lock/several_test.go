package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// names fails unless the text of err has text in it.
func names(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v does not name %q", err, text)
	}
}

func TestLocksTakenTogetherCannotWaitForEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		all := []string{"a", "b", "c", "d", "e"}
		var inside [5]atomic.Int32
		var callers sync.WaitGroup
		for range 4 {
			k := s.locker()
			for range 3 {
				callers.Go(func() {
					for range 20 {
						some := rand.Perm(5)[:2+rand.IntN(3)]
						var wanted []string
						for _, i := range some {
							wanted = append(wanted, all[i])
						}
						set, err := k.LockAll(t.Context(), append(wanted, wanted[0]))
						must(t, err)
						for _, i := range some {
							equal(t, "holders of "+all[i], inside[i].Add(1), 1)
							equal(t, "lease", set.Lease(all[i]).Valid(), true)
						}
						time.Sleep(time.Millisecond)
						for _, i := range some {
							inside[i].Add(-1)
						}
						must(t, set.Unlock(t.Context()))
					}
				})
			}
		}
		callers.Wait()
		for _, name := range all {
			equal(t, name+" is free", s.free(name), true)
		}
	})
}

func TestIfOneOfSeveralCannotBeHadNoneIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		busy := lock(t, b.Locker, "m")
		began := time.Now()
		_, err := a.LockAll(t.Context(), []string{"z", "m", "a"}, WithWait(3*time.Second))
		is(t, "after the time to wait", err, ErrWaitTimeout)
		names(t, err, `"m"`)
		equal(t, "took", time.Since(began), 3*time.Second)
		equal(t, "a is free", s.free("a"), true)
		equal(t, "z was not asked for", s.raw("z"), "")
		_, err = a.LockAll(t.Context(), []string{"a", "m"}, WithWait(0))
		is(t, "at once", err, ErrBusy)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = a.LockAll(ctx, []string{"a", "m"})
		is(t, "when the caller leaves", err, context.DeadlineExceeded)
		equal(t, "a is free at last", s.free("a"), true)
		must(t, busy.Unlock(t.Context()))
	})
}

func TestAWaitForSeveralEndsWhenOneThatWasHadIsLost(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		busy := lock(t, b.Locker, "m")
		failed := make(chan error)
		go func() {
			_, err := a.LockAll(t.Context(), []string{"a", "m"})
			failed <- err
		}()
		time.Sleep(time.Second)
		s.Mini().Del("lk:a")
		is(t, "error", <-failed, ErrLost)
		must(t, busy.Unlock(t.Context()))
	})
}

func TestTheContextOfSeveralEndsWithTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		set, err := s.locker().LockAll(t.Context(), []string{"a", "b", "c"})
		must(t, err)
		time.Sleep(20 * time.Second)
		must(t, set.Context().Err())
		s.Mini().Del("lk:b")
		<-set.Context().Done()
		is(t, "cause", context.Cause(set.Context()), ErrLost)
		is(t, "unlock", set.Unlock(t.Context()), ErrLost)
		equal(t, "the others are free", s.free("a") && s.free("c"), true)
		equal(t, "one that is not there", set.Lease("d") == nil, true)
	})
}

func TestAHolderMayTakeItsLockAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		nodes, m := s.crowd(2)
		k := nodes[0].Locker
		outer := lock(t, k, "x", WithReentrant())
		other, err := k.Lock(outer.Context(), "y", WithReentrant())
		must(t, err)
		before := m.commands.Load()
		inner, err := k.Lock(other.Context(), "x", WithReentrant())
		must(t, err)
		tried, err := k.TryLock(outer.Context(), "x", WithReentrant())
		must(t, err)
		equal(t, "commands", m.commands.Load()-before, 0)
		equal(t, "fence", inner.Fence(), outer.Fence())
		must(t, outer.Unlock(t.Context()))
		must(t, outer.Unlock(t.Context()))
		equal(t, "held by the inner ones", inner.Valid() && tried.Valid(), true)
		must(t, tried.Unlock(t.Context()))
		must(t, inner.Unlock(t.Context()))
		equal(t, "free", s.free("x"), true)
		must(t, other.Unlock(t.Context()))
	})
}

func TestOnlyALiveLeaseOfTheSameLockerMayBeTakenAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		l := lock(t, a.Locker, "x", WithReentrant())
		for situation, try := range map[string]func() (*Lease, error){
			"without the option": func() (*Lease, error) { return a.TryLock(l.Context(), "x") },
			"another locker":     func() (*Lease, error) { return b.TryLock(l.Context(), "x", WithReentrant()) },
			"another context":    func() (*Lease, error) { return a.TryLock(t.Context(), "x", WithReentrant()) },
		} {
			_, err := try()
			is(t, situation, err, ErrBusy)
		}
		must(t, l.Unlock(t.Context()))
		again, err := a.TryLock(context.WithoutCancel(l.Context()), "x", WithReentrant())
		must(t, err)
		if again.Fence() <= l.Fence() {
			t.Error("a lease that was given back was taken again")
		}
		must(t, again.Unlock(t.Context()))
	})
}

func TestALeaseThatIsBorrowedIsNotGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		l := lock(t, s.locker(), "x")
		same, ok := FromContext(l.Context())
		equal(t, "found", ok && same.Name() == "x" && same.Fence() == l.Fence() && same.Valid(), true)
		must(t, same.Unlock(t.Context()))
		equal(t, "valid", l.Valid(), true)
		must(t, l.Unlock(t.Context()))
		_, ok = FromContext(t.Context())
		equal(t, "in another context", ok, false)
	})
}

func TestInspectTellsWhoHasIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		state, err := a.Inspect(t.Context(), "x")
		must(t, err)
		equal(t, "before", state, State{})
		began := time.Now()
		l := lock(t, a.Locker, "x", WithLabel("nightly report"))
		time.Sleep(time.Second)
		go func() { _, _ = b.Lock(t.Context(), "x", WithWait(4*time.Second)) }()
		time.Sleep(time.Second)
		state, err = b.Inspect(t.Context(), "x")
		must(t, err)
		want := State{Held: true, Holder: Holder{us.Host, us.PID, "nightly report"}, Fence: l.Fence(), Since: began.Local(), Remaining: 8 * time.Second, Waiting: 1}
		equal(t, "held", fmt.Sprint(state), fmt.Sprint(want))
		equal(t, "readable", strings.Contains(s.raw("x"), want.Holder.String()), true)
		_, err = b.TryLock(t.Context(), "x")
		busy, _ := errors.AsType[*BusyError](err)
		equal(t, "busy", *busy, BusyError{Name: "x", Holder: want.Holder, Fence: l.Fence(), Held: 2 * time.Second, Remaining: 8 * time.Second, Waiting: 1})
		time.Sleep(4 * time.Second)
		must(t, l.Unlock(t.Context()))
		state, err = b.Inspect(t.Context(), "x")
		must(t, err)
		equal(t, "after it", fmt.Sprint(state), fmt.Sprint(State{Fence: l.Fence()}))
		must(t, s.Mini().Set("lk:x", "theirs"))
		_, err = b.Inspect(t.Context(), "x")
		is(t, "of what is no lock", err, ErrConflict)
	})
}

func TestALockMayBeBrokenByItsFence(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		l := lock(t, a.Locker, "x")
		broken, err := b.Break(t.Context(), "x", l.Fence()-1)
		equal(t, "another one", broken, false)
		must(t, err)
		got := make(chan *Lease)
		go func() { got <- lock(t, b.Locker, "x") }()
		time.Sleep(100 * time.Millisecond)
		broken, err = b.Break(t.Context(), "x", l.Fence())
		must(t, err)
		equal(t, "this one", broken, true)
		next := <-got
		<-l.Context().Done()
		lost, _ := errors.AsType[*LostError](context.Cause(l.Context()))
		equal(t, "reason", lost.Reason, Broken)
		must(t, next.Unlock(t.Context()))
		broken, err = b.Break(t.Context(), "x", next.Fence())
		equal(t, "nobody's", broken, false)
		must(t, err)
	})
}

func TestAGrantThatIsBrokenIsWaitedForAnew(t *testing.T) {
	for situation, option := range map[string]LockOption{"told of it": WithWait(time.Minute), "asking": WithoutRenewal()} {
		t.Run(situation, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server) {
				a, b, c := s.node(), s.node(), s.node()
				l := lock(t, a.Locker, "x")
				got := make(chan *Lease)
				go func() { got <- lock(t, b.Locker, "x", WithWait(time.Minute), option) }()
				time.Sleep(100 * time.Millisecond)
				b.wire.Freeze()
				must(t, l.Unlock(t.Context()))
				state, err := c.Inspect(t.Context(), "x")
				must(t, err)
				equal(t, "granted", state.Granted, true)
				broken, err := c.Break(t.Context(), "x", state.Fence)
				must(t, err)
				equal(t, "broken", broken, true)
				b.wire.Thaw()
				began := time.Now()
				must(t, (<-got).Unlock(t.Context()))
				equal(t, "took", time.Since(began), 0)
				equal(t, "free", s.free("x"), true)
			})
		})
	}
}

func TestAWaitIsBoundedByItsTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		l := lock(t, a.Locker, "x", WithLabel("who has it"))
		began := time.Now()
		var both sync.WaitGroup
		for i, want := range []string{"who has it", `"x"`} { // the head of the line, and who waits behind
			both.Go(func() {
				_, err := b.Lock(t.Context(), "x", WithWait(2*time.Second))
				is(t, "answer", err, ErrWaitTimeout)
				names(t, err, want)
				equal(t, "took", time.Since(began), 2*time.Second+time.Duration(i)*time.Millisecond)
			})
			time.Sleep(time.Millisecond)
		}
		both.Wait()
		_, err := b.Lock(t.Context(), "x", WithWait(0))
		is(t, "not at all", err, ErrBusy)
		must(t, l.Unlock(t.Context()))
		time.Sleep(time.Second)
		equal(t, "free", s.free("x"), true)
	})
}

func TestWhatHappensIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		l := lock(t, a.Locker, "x")
		_, _ = b.TryLock(t.Context(), "x")
		_, _ = b.Lock(t.Context(), "x", WithWait(time.Second))
		time.Sleep(time.Second)
		must(t, l.Unlock(t.Context()))
		s.mu.Lock()
		defer s.mu.Unlock()
		var kinds []string
		for _, e := range s.events {
			kinds = append(kinds, string(e.Kind))
			equal(t, "name and key", e.Name+e.Key, "xlk:x")
			equal(t, "token", len(e.Token), TokenSize)
			if slices.Contains([]Kind{Acquired, Released}, e.Kind) {
				equal(t, "fence", e.Fence, l.Fence())
			}
		}
		equal(t, "kinds", strings.Join(kinds, ", "), "acquired, refused, abandoned, failed, released")
		last := s.events[len(s.events)-1]
		equal(t, "held for", last.Hold, 2*time.Second)
	})
}

func TestAHolderIsReadAsItWasWritten(t *testing.T) {
	for _, h := range []Holder{{}, {"host", 12, ""}, {"host", 12, "a label of words"}, {"a/b", 1, "é"}} {
		text := holderText(h.String())
		equal(t, "size", len(text), holderSize)
		if h == (Holder{}) {
			h.Label = "unknown"
		}
		equal(t, "read", readHolder(text), h)
	}
	equal(t, "control characters", readHolder(holderText("h/1 a\x00\nb")), Holder{"h", 1, "a  b"})
	long := holderText("h/1 " + strings.Repeat("é", 100))
	equal(t, "cut", len(long), holderSize)
	equal(t, "at a rune", strings.ContainsRune(long, '\uFFFD'), false)
}
