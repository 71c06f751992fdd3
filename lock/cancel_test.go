package lock

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestT10WaitersWhoGiveUpLeaveNothingBehind(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		var inside, got, cancelled atomic.Int32
		var all sync.WaitGroup
		for range 6 {
			k := s.locker()
			for range 4 {
				all.Go(func() {
					for range 60 {
						ctx, cancel := context.WithTimeout(t.Context(), rand.N(60*time.Millisecond))
						l, err := k.Lock(ctx, "x")
						cancel()
						if err != nil {
							is(t, "answer", err, context.DeadlineExceeded)
							cancelled.Add(1)
							continue
						}
						if inside.Add(1) != 1 {
							t.Error("two are inside")
						}
						time.Sleep(rand.N(5 * time.Millisecond))
						inside.Add(-1)
						must(t, l.Unlock(t.Context()))
						got.Add(1)
					}
				})
			}
		}
		all.Wait()
		time.Sleep(time.Second)
		t.Logf("%d got it, %d gave up", got.Load(), cancelled.Load())
		equal(t, "free", s.free("x"), true)
	})
}

func TestT10WhoGivesUpAsTheLockIsGrantedPassesItOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b, c := s.node(), s.node(), s.node()
		l := lock(t, a.Locker, "x")
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error)
		go func() {
			_, err := b.Lock(ctx, "x")
			gone <- err
		}()
		time.Sleep(100 * time.Millisecond)
		got := make(chan *Lease)
		go func() { got <- lock(t, c.Locker, "x") }()
		time.Sleep(100 * time.Millisecond)
		b.wire.Freeze() // the grant is on its way
		must(t, l.Unlock(t.Context()))
		cancel()
		is(t, "who gave up", <-gone, context.Canceled)
		b.wire.Thaw()
		began := time.Now()
		must(t, (<-got).Unlock(t.Context()))
		if waited := time.Since(began); waited > 100*time.Millisecond {
			t.Errorf("the next one waited for %v", waited)
		}
	})
}

func TestT10AHeadThatLeavesAsItBecomesOnePassesItOn(t *testing.T) {
	var l lines
	equal(t, "the first waits", l.join("x") != nil, false)
	second, third := l.join("x"), l.join("x")
	l.leave("x")
	<-second
	l.quit("x", second) // his context has ended too
	select {
	case <-third:
	default:
		t.Error("nobody is the head")
	}
}

func TestT10AContextThatHasEndedGetsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("no longer wanted")
		cancel(why)
		for _, f := range []func() (*Lease, error){
			func() (*Lease, error) { return k.Lock(ctx, "x") },
			func() (*Lease, error) { return k.TryLock(ctx, "x") },
		} {
			l, err := f()
			is(t, "answer", err, context.Canceled)
			is(t, "its cause", err, why)
			equal(t, "lease", l, nil)
		}
		equal(t, "in Redis", s.raw("x"), "")
	})
}

func TestT11UnlockWorksWithAContextThatHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		ctx, cancel := context.WithCancel(t.Context())
		l, err := s.locker().Lock(ctx, "x")
		must(t, err)
		cancel()
		time.Sleep(time.Second)
		equal(t, "valid", l.Valid(), true)
		must(t, l.Unlock(ctx))
		equal(t, "free", s.free("x"), true)
	})
}

func TestT11UnlockMayBeCalledByAnybodyAndAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		l := lock(t, a.Locker, "x")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() { must(t, l.Unlock(t.Context())) })
		}
		all.Wait()
		next := lock(t, b.Locker, "x")
		must(t, l.Unlock(t.Context()))
		equal(t, "the next one's", next.Valid(), true)
		equal(t, "released", s.told(Released), 1)
		must(t, next.Unlock(t.Context()))
	})
}

func TestT11UnlockAfterTheLeaseWasLostSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		l := lock(t, a.Locker, "x", WithoutRenewal(), WithLease(time.Second))
		<-l.Context().Done()
		next := lock(t, b.Locker, "x")
		for range 2 {
			is(t, "unlock", l.Unlock(t.Context()), ErrLost)
		}
		synctest.Wait()
		equal(t, "the next one's", next.Refresh(t.Context()), nil)
		must(t, next.Unlock(t.Context()))
	})
}

func TestT11ALeaseThatIsForgottenIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		lock(t, k, "forgotten")
		once := lock(t, k, "once in a while", WithoutRenewal(), WithLease(time.Hour)).Fence()
		for range 5 {
			runtime.GC()
			runtime.Gosched() // the cleanup runs outside of the bubble
			time.Sleep(4 * time.Second)
		}
		equal(t, "free", s.free("forgotten"), true)
		equal(t, "told", s.told(LeaseLeaked), 1)
		state, err := k.Inspect(t.Context(), "once in a while")
		must(t, err)
		equal(t, "not renewed: held", state.Held && state.Fence == once, true)
	})
}

func TestT12WhatEndsABodyReleasesTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		for situation, body := range map[string]func(){
			"return": func() {},
			"panic":  func() { panic("why not") },
			"Goexit": runtime.Goexit,
		} {
			ended := make(chan any)
			go func() {
				defer func() { ended <- recover() }()
				_ = k.Do(t.Context(), "x", func(context.Context, *Lease) error {
					body()
					return nil
				})
			}()
			if p := <-ended; (p != nil) != (situation == "panic") {
				t.Errorf("%s: recovered %v", situation, p)
			}
			equal(t, situation+": free", s.free("x"), true)
		}
	})
}

func TestABodyEndsBeforeTheRelease(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		why := errors.New("the body's")
		err := k.Do(t.Context(), "x", func(ctx context.Context, l *Lease) error {
			must(t, ctx.Err())
			equal(t, "held", s.free("x"), false)
			in, ok := FromContext(ctx)
			equal(t, "lease of the context", ok && in.Fence() == l.Fence(), true)
			return why
		})
		is(t, "error", err, why)
		equal(t, "free", s.free("x"), true)
	})
}

func TestABodyWhoseLeaseIsLostFails(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		err := k.Do(t.Context(), "x", func(ctx context.Context, l *Lease) error {
			s.Mini().Del("lk:x")
			<-ctx.Done()
			is(t, "cause", context.Cause(ctx), ErrLost)
			return nil
		})
		is(t, "error", err, ErrLost)
	})
}

func TestABodyEndsWithItsCaller(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.locker().Do(ctx, "x", func(ctx context.Context, l *Lease) error {
			<-ctx.Done()
			equal(t, "lease", l.Valid(), true)
			return ctx.Err()
		})
		is(t, "error", err, context.DeadlineExceeded)
		equal(t, "free", s.free("x"), true)
	})
}
