package rebuild

import (
	"context"
	"sync"
)

// life is how long a node lives, and everything that must have ended when it does.
type life struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   sync.WaitGroup // flights, loads, background jobs

	mu       sync.Mutex // guards what follows, and work.Add against work.Wait
	closed   bool
	draining bool
	loads    int
	idle     chan struct{} // closed when draining and no load runs; nil before
}

func newLife() *life {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &life{ctx: ctx, cancel: cancel}
}

func (l *life) done() <-chan struct{} { return l.ctx.Done() }

func (l *life) ended() bool { return l.ctx.Err() != nil }

// enter counts the caller as work until leave; false once the node is closed.
func (l *life) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.work.Add(1)
	return true
}

func (l *life) leave() { l.work.Done() }

// run runs f in a goroutine that end waits for; false once the node is closed.
func (l *life) run(f func()) bool {
	if !l.enter() {
		return false
	}
	go func() {
		defer l.leave()
		f()
	}()
	return true
}

// beginLoad is refused once loads are to cease, but for what a running one needs.
func (l *life) beginLoad(nested bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.draining && !nested {
		return false
	}
	l.loads++
	return true
}

func (l *life) endLoad() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loads--
	if l.loads == 0 && l.idle != nil {
		close(l.idle)
		l.idle = nil
	}
}

// drain lets no new load begin and waits until none is running, or ctx ends.
func (l *life) drain(ctx context.Context) error {
	l.mu.Lock()
	l.draining = true
	if l.loads == 0 || l.closed {
		l.mu.Unlock()
		return nil
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	l.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-l.done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end closes the node and waits for its work.
func (l *life) end() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel(ErrClosed)
	l.work.Wait()
}
