package lock

import (
	"context"
	"sync"
	"time"
)

// life is how long a Locker lives, and everything that must have ended when it does.
type life struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   sync.WaitGroup // calls, and what they leave to be done behind them

	mu     sync.Mutex // guards closed, and work.Add against work.Wait
	closed bool
}

func newLife() *life {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &life{ctx: ctx, cancel: cancel}
}

// enter counts the caller as work until leave; false once the Locker is closed.
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

// behind runs f in a goroutine that end waits for. Its caller has entered, and not left yet.
func (l *life) behind(f func()) { l.work.Go(f) }

// aside runs f in such a goroutine for those who have not; false once the Locker is closed.
func (l *life) aside(f func()) bool {
	if !l.enter() {
		return false
	}
	l.work.Go(func() {
		defer l.leave()
		f()
	})
	return true
}

// asideOrNow is aside, but it runs f at once where there is no later.
func (l *life) asideOrNow(f func()) {
	if !l.aside(f) {
		f()
	}
}

// end lets nobody enter any more, and makes those who wait leave; false if that was done before.
func (l *life) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.closed = true
	l.cancel(ErrClosed)
	return true
}

// sleep waits for d, or until the Locker is closed; true if it is.
func (l *life) sleep(d time.Duration) (closed bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return false
	case <-l.ctx.Done():
		return true
	}
}
