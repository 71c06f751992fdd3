package lock

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// onceNode is a process with a Once.
type onceNode[V any] struct {
	*Once[V]
	node
	t    *testing.T
	runs *atomic.Int32 // of its functions
}

// onceOf starts one. Its lock keys are those of [server.free] too.
func onceOf[V any](s *server, options ...Option) onceNode[V] {
	s.t.Helper()
	n := s.node()
	o, err := NewOnce[V](n.client, append([]Option{WithObserver(s.hear), WithPrefix("lk:")}, options...)...)
	must(s.t, err)
	s.t.Cleanup(func() { must(s.t, o.Close()) })
	return onceNode[V]{o, n, s.t, &atomic.Int32{}}
}

// does calls Do in a bubble, with a function that takes d and returns v and err.
func (n onceNode[V]) does(id string, d time.Duration, v V, err error, options ...LockOption) (V, error) {
	return n.Once.Do(n.t.Context(), id, func(context.Context) (V, error) {
		n.runs.Add(1)
		time.Sleep(d)
		return v, err
	}, options...)
}

// gets fails unless Do returns want.
func (n onceNode[V]) gets(what string, want V) {
	n.t.Helper()
	got, err := n.does("x", 0, want, nil)
	if err != nil || any(got) != any(want) {
		n.t.Errorf("%s: got %v, %v, want %v", what, got, err, want)
	}
}

// repeats fails unless Do returns want without running its function.
func (n onceNode[V]) repeats(what string, want V) {
	n.t.Helper()
	got, err := n.Once.Do(n.t.Context(), "x", func(context.Context) (v V, err error) { return v, errRan })
	if err != nil || any(got) != any(want) {
		n.t.Errorf("%s: got %v, %v, want %v", what, got, err, want)
	}
}

// refuses fails unless Do returns an error of this kind without running its function.
func (n onceNode[V]) refuses(what string, want error, options ...LockOption) error {
	n.t.Helper()
	before := n.runs.Load()
	var none V
	v, err := n.does("x", 0, none, nil, options...)
	if !errors.Is(err, want) || any(v) != any(none) {
		n.t.Errorf("%s: got %v, %v, want %v", what, v, err, want)
	}
	equal(n.t, what+": runs", n.runs.Load()-before, 0)
	return err
}

var (
	errRan  = errors.New("it was run again")
	errTest = errors.New("no money")
)

// result is what a call has returned.
type result[V any] struct {
	v   V
	err error
}

// later calls does in a goroutine of its own.
func (n onceNode[V]) later(id string, d time.Duration, v V, err error, options ...LockOption) chan result[V] {
	c := make(chan result[V], 1)
	go func() {
		v, err := n.does(id, d, v, err, options...)
		c <- result[V]{v, err}
	}()
	return c
}
