package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestT30CloseEndsWaitsAndGivesBackWhatIsHeld(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.node(), s.node()
		held, other := lock(t, a.Locker, "x"), lock(t, b.Locker, "y")
		waited, inLine := make(chan error), make(chan error)
		for _, c := range []chan error{waited, inLine} {
			go func() {
				_, err := a.Lock(t.Context(), "y")
				c <- err
			}()
		}
		time.Sleep(time.Second)
		began := time.Now()
		closed := make(chan error)
		go func() { closed <- a.Close() }()
		is(t, "who waited", <-waited, ErrClosed)
		is(t, "who waited for him", <-inLine, ErrClosed)
		must(t, <-closed)
		equal(t, "took", time.Since(began), 0)
		is(t, "cause", context.Cause(held.Context()), ErrClosed)
		equal(t, "free", s.free("x"), true)
		must(t, held.Unlock(t.Context()))
		_, err := a.Lock(t.Context(), "x")
		is(t, "lock after it", err, ErrClosed)
		is(t, "refresh after it", held.Refresh(t.Context()), ErrClosed)
		must(t, a.Close())
		must(t, other.Unlock(t.Context()))
		equal(t, "nobody waits", s.free("y"), true)
	})
}

func TestT30CloseDoesNotWaitForARedisThatIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a := s.node()
		held := lock(t, a.Locker, "x")
		answered := make(chan error)
		s.Freeze()
		go func() {
			_, err := a.Lock(t.Context(), "y")
			answered <- err
		}()
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := a.TryLock(ctx, "z")
		is(t, "who gave up", err, context.DeadlineExceeded)
		began := time.Now()
		must(t, a.Close())
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		if err := <-answered; !errors.Is(err, ErrClosed) && !errors.Is(err, ErrUnavailable) {
			t.Errorf("who was about to take it: %v", err)
		}
		is(t, "unlock", held.Unlock(t.Context()), ErrUnavailable)
		s.Thaw()
	})
}

func TestARingIsRefused(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	if _, err := New(ring); err == nil {
		t.Error("it was taken")
	}
	if _, err := New(nil); err == nil {
		t.Error("no client was taken")
	}
}

func TestEveryFaultOfTheOptionsIsNamedAtOnce(t *testing.T) {
	_, err := New(nil, WithPrefix("a b"), WithRedisTimeout(0), WithLease(time.Millisecond), WithMaxHold(-2), WithHoldWarning(-2), WithWait(-2), WithLogger(nil), WithObserver(nil))
	if err == nil {
		t.Fatal("they were taken")
	}
	for _, name := range []string{"WithPrefix", "WithRedisTimeout", "WithLease", "WithMaxHold", "WithHoldWarning", "WithWait", "WithLogger", "WithObserver"} {
		names(t, err, name)
	}
}

func TestACallWithWrongOptionsIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		_, err := k.Lock(t.Context(), "x", WithLease(-1))
		names(t, err, "WithLease")
		_, err = k.TryLock(t.Context(), "")
		names(t, err, "empty")
		_, err = k.Lock(t.Context(), string(make([]byte, maxName+1)))
		names(t, err, "1025 bytes")
		_, err = k.LockAll(t.Context(), []string{"x", ""})
		names(t, err, "empty")
		synctest.Wait()
		equal(t, "free", s.free("x"), true)
	})
}
