package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// stage is what one measurement stands on: servers, processes and lockers that are gone after it.
type stage struct {
	name  string
	short bool
	log   io.Writer

	mu       sync.Mutex // guards what follows
	cleanups []func()
	failed   bool
	calls    context.Context
}

var _ redistest.TB = (*stage)(nil)

// failure is how a measurement is left that cannot go on.
type failure struct{ text string }

func (s *stage) Helper()                  {}
func (s *stage) Name() string             { return s.name }
func (s *stage) Context() context.Context { return context.Background() }

func (s *stage) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *stage) Failed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *stage) Logf(format string, args ...any) {
	fmt.Fprintf(s.log, s.name+": "+format+"\n", args...)
}

func (s *stage) Fatalf(format string, args ...any) {
	s.mu.Lock()
	s.failed = true
	s.mu.Unlock()
	panic(failure{fmt.Sprintf(format, args...)})
}

// Skipf fails too: a measurement without its server is none.
func (s *stage) Skipf(format string, args ...any) { s.Fatalf(format, args...) }

func (s *stage) must(err error) {
	if err != nil {
		s.Fatalf("%v", err)
	}
}

// run takes the measurement, and takes the stage down.
func (s *stage) run(measure func(*stage) []row) (rows []row, err error) {
	defer func() {
		for _, f := range slices.Backward(s.cleanups) {
			f()
		}
	}()
	defer func() {
		if p := recover(); p != nil {
			f, ok := p.(failure)
			if !ok {
				panic(p)
			}
			err = fmt.Errorf("%s: %s", s.name, f.text)
		}
	}()
	return measure(s), nil
}

// atOnce runs f for each peer at the same time, where one does not disturb the other.
func (s *stage) atOnce(which []peer, f func(peer)) {
	var all sync.WaitGroup
	failures := make(chan any, len(which))
	for _, p := range which {
		all.Go(func() {
			defer func() {
				if f := recover(); f != nil {
					failures <- f
				}
			}()
			f(p)
		})
	}
	all.Wait()
	select {
	case f := <-failures:
		panic(f)
	default:
	}
}

// open opens one of p's lockers in this process.
func (s *stage) open(p peer, o opening) locker {
	k, err := p.open(o)
	s.must(err)
	s.Cleanup(k.close)
	return k
}

// calling is a context that ends some time, for many calls: one for each would cost each something.
func (s *stage) calling() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil || s.calls.Err() != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*patience)
		s.calls, s.cleanups = ctx, append(s.cleanups, cancel)
	}
	return s.calls
}

// cycle takes and gives back a lock that nobody else wants.
func (s *stage) cycle(k locker, name string) {
	h, err := k.lock(s.calling(), name)
	if err != nil {
		s.Logf("%s: %v", name, err)
		h = s.take(k, name)
	}
	s.must(h.Unlock(context.Background()))
}

// take takes a lock that nobody has.
func (s *stage) take(k locker, name string) held {
	h, err := lockSoon(k, name)
	s.must(err)
	return h
}

// pick is the one of two that goes with the form.
func pick[T any](s *stage, short, full T) T {
	if s.short {
		return short
	}
	return full
}

func (s *stage) server() (*redistest.Server, *redis.Client) {
	srv := redistest.RealOnly(s)
	return srv, srv.Client(s)
}
