package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

func TestT08AnAcquireWhoseAnswerIsLostIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		lock(t, a.Locker, "warm").Unlock(t.Context())
		a.faults.LoseReply(redistest.Script(scripts.acquire)).Times(1)
		_, err := a.TryLock(t.Context(), "x")
		is(t, "answer", err, ErrUnavailable)
		synctest.Wait()
		equal(t, "free at once", s.free("x"), true)
		must(t, lock(t, b.Locker, "x").Unlock(t.Context()))
	})
}

func TestT08AWaiterWhoseAnswerIsLostHasTheLockByItsNextHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		held := lock(t, a.Locker, "x", WithoutRenewal(), WithLease(3*time.Second))
		got := make(chan *Lease)
		go func() { got <- lock(t, b.Locker, "x") }()
		time.Sleep(2900 * time.Millisecond)
		rule := b.faults.LoseReply(redistest.Script(scripts.acquire))
		time.Sleep(200 * time.Millisecond) // the lease has ended, and was taken
		rule.Clear()
		l := <-got
		equal(t, "token in Redis", s.raw("x")[lockOffsets[fToken]:lockOffsets[fFence]], l.hold.Token)
		must(t, l.Unlock(t.Context()))
		equal(t, "free", s.free("x"), true)
		is(t, "the first one", held.Unlock(t.Context()), ErrLost)
	})
}

func TestT08ARenewalWhoseAnswerIsLostCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a := s.node()
		l := lock(t, a.Locker, "x")
		rule := a.faults.LoseReply(redistest.Script(scripts.renew)).Times(3)
		time.Sleep(15 * time.Second)
		must(t, l.Context().Err())
		equal(t, "lost answers", rule.Count() >= 3, true)
		must(t, l.Unlock(t.Context()))
	})
}

func TestT08AReleaseWhoseAnswerIsLostIsDone(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		l := lock(t, a.Locker, "x")
		a.faults.LoseReply(redistest.Script(scripts.release)).Times(1)
		err := l.Unlock(t.Context())
		is(t, "answer", err, ErrUnavailable)
		next := lock(t, b.Locker, "x")
		time.Sleep(10 * time.Second) // it is tried again meanwhile
		equal(t, "the next one's", next.Valid(), true)
		equal(t, "again", l.Unlock(t.Context()), err)
		must(t, next.Unlock(t.Context()))
	})
}

func TestT09AnAcquireThatArrivesLateLeavesNoLock(t *testing.T) {
	for situation, edit := range map[string]func(*redis.Options){
		"context kept by the client":    func(o *redis.Options) { o.ContextTimeoutEnabled = true },
		"context ignored by the client": func(*redis.Options) {},
	} {
		t.Run(situation, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *server) {
				wire := s.Link()
				k, err := New(wire.Client(t, edit), WithObserver(s.hear))
				must(t, err)
				t.Cleanup(func() { must(t, k.Close()) })
				lock(t, k, "warm").Unlock(t.Context())
				for _, stall := range []time.Duration{250 * time.Millisecond, 450 * time.Millisecond, 700 * time.Millisecond, 1200 * time.Millisecond} {
					wire.Freeze()
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					began := time.Now()
					_, err := k.Lock(ctx, "x")
					cancel()
					is(t, "answer", err, context.DeadlineExceeded)
					equal(t, "returned after", time.Since(began), 200*time.Millisecond)
					time.Sleep(stall - 200*time.Millisecond)
					wire.Thaw()
					time.Sleep(510 * time.Millisecond)
					equal(t, "free after a stall of "+stall.String(), s.free("x"), true)
				}
			})
		})
	}
}

func TestT09ACommandThatIsSentTwiceLeavesNoLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a := s.node()
		lock(t, a.Locker, "warm").Unlock(t.Context())
		late := a.faults.Late(redistest.Script(scripts.acquire)).Times(1)
		_, err := a.TryLock(t.Context(), "x")
		is(t, "answer", err, ErrUnavailable)
		time.Sleep(300 * time.Millisecond)
		late.Release(t.Context())
		equal(t, "a ghost has it", s.free("x"), false)
		time.Sleep(300 * time.Millisecond)
		equal(t, "free", s.free("x"), true)
	})
}

func TestT09ABusyAnswerToASecondSendingIsNotTheLastOfIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		l := lock(t, b.Locker, "x")
		lock(t, a.Locker, "warm").Unlock(t.Context())
		a.wire.Freeze()
		answer := make(chan error)
		go func() {
			_, err := a.TryLock(t.Context(), "x")
			answer <- err
		}()
		time.Sleep(50 * time.Millisecond)
		a.wire.Cut()
		a.wire.Thaw()
		is(t, "answer to the second", <-answer, ErrBusy)
		equal(t, "what may come of the first is removed", s.told(Abandoned), 1)
		must(t, l.Unlock(t.Context()))
	})
}

func TestT09WhatIsSentTooLateIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a := s.node()
		lock(t, a.Locker, "warm").Unlock(t.Context())
		late := a.faults.Late(redistest.Script(scripts.acquire)).Times(1)
		_, err := a.TryLock(t.Context(), "x")
		is(t, "answer", err, ErrUnavailable)
		time.Sleep(time.Minute)
		late.Release(t.Context())
		equal(t, "free", s.free("x"), true)
	})
}

func TestT13AHolderThatIsCutOffIsToldBeforeItsLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		l := lock(t, a.Locker, "x")
		time.Sleep(5 * time.Second)
		a.wire.Freeze()
		deadline := l.Deadline()
		<-l.Context().Done()
		if !time.Now().Before(deadline) {
			t.Error("it was told too late")
		}
		_, err := b.TryLock(t.Context(), "x")
		is(t, "others then", err, ErrBusy)
		lost, _ := errors.AsType[*LostError](context.Cause(l.Context()))
		equal(t, "reason", lost.Reason, Unreachable)
		next := lock(t, b.Locker, "x")
		if !time.Now().After(deadline) {
			t.Error("the next one had it before the deadline")
		}
		a.wire.Thaw()
		time.Sleep(time.Minute)
		equal(t, "valid after it", l.Valid(), false)
		equal(t, "the next one's", next.Valid(), true)
		is(t, "unlock", l.Unlock(t.Context()), ErrLost)
		must(t, next.Unlock(t.Context()))
	})
}

func TestT14APartitionThatHealsInTimeCostsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a := s.node()
		l := lock(t, a.Locker, "x")
		for range 5 {
			a.wire.Freeze()
			time.Sleep(5 * time.Second)
			a.wire.Thaw()
			time.Sleep(5 * time.Second)
			must(t, l.Context().Err())
		}
		must(t, l.Unlock(t.Context()))
	})
}

func TestT17AServerThatForgetsItsScriptsIsNotNoticed(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		forget := func() { must(t, a.client.ScriptFlush(t.Context()).Err()) }
		for range 20 {
			forget()
			l := lock(t, a.Locker, "x")
			got := make(chan *Lease)
			go func() { got <- lock(t, b.Locker, "x") }()
			synctest.Wait()
			forget()
			time.Sleep(4 * time.Second)
			must(t, l.Unlock(t.Context()))
			forget()
			must(t, (<-got).Unlock(t.Context()))
		}
		equal(t, "free", s.free("x"), true)
		equal(t, "abandoned", s.told(Abandoned), 0)
	})
}
