package lock

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

// server is a server in a bubble, and what its lockers have told.
type server struct {
	*redistest.BubbleServer
	t *testing.T
	teller
}

// teller keeps what lockers tell.
type teller struct {
	mu     sync.Mutex // guards events
	events []Event
}

// bubble runs f in a bubble, with a server in it.
func bubble(t *testing.T, f func(*testing.T, *server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &server{BubbleServer: redistest.Bubble(t), t: t}) })
}

// node is one process: a locker, the wire to the server, and the faults of its client.
type node struct {
	*Locker
	wire   *redistest.Link
	client *redis.Client
	faults *redistest.Faults
}

// node starts one.
func (s *server) node(options ...Option) node {
	s.t.Helper()
	n := node{wire: s.Link(), faults: redistest.NewFaults(s.t)}
	n.client = n.wire.Client(s.t)
	n.client.AddHook(n.faults)
	k, err := New(n.client, append([]Option{WithObserver(s.hear)}, options...)...)
	must(s.t, err)
	s.t.Cleanup(func() { must(s.t, k.Close()) })
	n.Locker = k
	return n
}

// locker is that of a node of its own.
func (s *server) locker(options ...Option) *Locker { return s.node(options...).Locker }

// restart is what a restart comes to: connections break, and the data are gone.
func (s *server) restart() {
	s.Mini().FlushAll()
	s.Cut()
}

// free tells whether nobody has the lock, or is to have it.
func (s *server) free(name string) bool {
	raw, err := s.Mini().Get("lk:" + name)
	return err != nil || raw[lockOffsets[fState]:lockOffsets[fToken]] == stateFree && len(raw) == lockSize
}

// key is the lock in Redis, or "".
func (s *server) raw(name string) string {
	raw, _ := s.Mini().Get("lk:" + name)
	return raw
}

func (o *teller) hear(e Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, e)
}

// told counts the events of a kind.
func (o *teller) told(kind Kind) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// lock takes a lock, which must be possible. It is called in goroutines too, for which others wait: so it goes on with a nil
// Lease, rather than end the goroutine.
func lock(t *testing.T, k *Locker, name string, options ...LockOption) *Lease {
	t.Helper()
	l, err := k.Lock(t.Context(), name, options...)
	if err != nil {
		t.Error(err)
	}
	return l
}

// is fails unless err is one of what it should be, and no other kind.
func is(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
	for _, other := range []error{ErrBusy, ErrWaitTimeout, ErrUnavailable, ErrNotReplicated, ErrConflict, ErrLost, ErrMaxHold, ErrReleased, ErrClosed, ErrInProgress, ErrRecursive} {
		if want != other && errors.Is(err, other) {
			t.Errorf("%s: %v is a %v too", what, err, other)
		}
	}
}

func TestALockIsHeldUntilItIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b := s.locker(), s.locker()
		l := lock(t, a, "x")
		time.Sleep(time.Minute)
		_, err := b.TryLock(t.Context(), "x")
		is(t, "others meanwhile", err, ErrBusy)
		equal(t, "valid", l.Valid(), true)
		must(t, l.Unlock(t.Context()))
		is(t, "cause", context.Cause(l.Context()), ErrReleased)
		equal(t, "valid after it", l.Valid(), false)
		next := lock(t, b, "x")
		if next.Fence() <= l.Fence() {
			t.Errorf("fences: %d, then %d", l.Fence(), next.Fence())
		}
		must(t, next.Unlock(t.Context()))
	})
}

func TestWaitersAreServedInTheOrderOfTheirProcesses(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		first := lock(t, s.locker(), "x")
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 5 {
			k := s.locker()
			all.Go(func() {
				must(t, k.Do(t.Context(), "x", func(context.Context, *Lease) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
					return nil
				}))
			})
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		began := time.Now()
		must(t, first.Unlock(t.Context()))
		all.Wait()
		equal(t, "order", fmt.Sprint(order), "[0 1 2 3 4]")
		equal(t, "took", time.Since(began), 0)
	})
}

func TestCallersOfOneProcessAreServedInTheirOrder(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		k := s.locker()
		first := lock(t, k, "x")
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				l := lock(t, k, "x")
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				must(t, l.Unlock(t.Context()))
			})
			synctest.Wait()
		}
		must(t, first.Unlock(t.Context()))
		all.Wait()
		equal(t, "in order", slices.IsSorted(order), true)
	})
}
