package rebuild

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestEndWaitsForAllWorkAndLetsNoneBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife()
		stop := make(chan struct{})
		equal(t, "enters", l.enter(), true)
		equal(t, "runs", l.run(func() { <-stop }), true)
		ended := make(chan struct{})
		go func() {
			l.end()
			close(ended)
		}()
		synctest.Wait()
		equal(t, "ended", l.ended(), true)
		equal(t, "enters once it is closed", l.enter(), false)
		equal(t, "runs once it is closed", l.run(func() { t.Error("it ran") }), false)
		equal(t, "a load begins once it is closed", l.beginLoad(false), false)
		if cause := context.Cause(l.ctx); !errors.Is(cause, ErrClosed) {
			t.Errorf("cause: %v", cause)
		}
		close(stop)
		synctest.Wait()
		select {
		case <-ended:
			t.Error("it ended before the last had left")
		default:
		}
		l.leave()
		<-ended
		l.end() // again
	})
}

func TestDrainingLetsNoLoadBeginAndWaitsForThoseThatRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife()
		equal(t, "the first begins", l.beginLoad(false), true)
		equal(t, "the second begins", l.beginLoad(false), true)
		drained := make(chan error, 2)
		for range 2 {
			go func() { drained <- l.drain(t.Context()) }()
		}
		synctest.Wait()
		equal(t, "begins while it drains", l.beginLoad(false), false)
		equal(t, "work other than loads goes on", l.run(func() {}), true)
		l.endLoad()
		synctest.Wait()
		equal(t, "drained with one still running", len(drained), 0)
		l.endLoad()
		must(t, <-drained)
		must(t, <-drained)
		must(t, l.drain(t.Context()))
		l.end()
		must(t, l.drain(t.Context()))
	})
}

func TestDrainingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife()
		l.beginLoad(false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		equal(t, "begins after that", l.beginLoad(false), false)
		l.endLoad()
		l.end()
	})
}

func TestDrainingEndsWithTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife()
		l.beginLoad(false)
		drained := make(chan error, 1)
		go func() { drained <- l.drain(t.Context()) }()
		synctest.Wait()
		l.end()
		must(t, <-drained)
		l.endLoad()
	})
}

func TestALifeMayEndWhileManyEnter(t *testing.T) {
	l := newLife()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 500 {
				if l.beginLoad(false) {
					l.run(func() {})
					l.endLoad()
				}
				if l.enter() {
					l.leave()
				}
			}
		})
	}
	for range 2 {
		wg.Go(l.end)
		wg.Go(func() { _ = l.drain(t.Context()) })
	}
	wg.Wait()
	equal(t, "loads", l.loads, 0)
	equal(t, "enters", l.enter(), false)
}
