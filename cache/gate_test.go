package cache

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

func TestAShutGateLetsNobodyIn(t *testing.T) {
	var g gate
	for range 100 {
		inside, ok := g.enter()
		equal(t, "let in", ok, true)
		inside.Add(-1)
	}
	g.close()
	for range 100 {
		_, ok := g.enter()
		equal(t, "let in after the close", ok, false)
	}
	g.close() // nobody is inside
}

func TestAGateIsClosedWhenEverybodyHasLeft(t *testing.T) {
	var g gate
	first, _ := g.enter()
	second, _ := g.enter()
	var closed atomic.Bool
	var closing sync.WaitGroup
	closing.Go(func() {
		g.close()
		closed.Store(true)
	})
	for !g.shut.Load() {
		runtime.Gosched()
	}
	first.Add(-1)
	for range 1000 {
		runtime.Gosched()
	}
	equal(t, "closed while somebody is inside", closed.Load(), false)
	second.Add(-1)
	closing.Wait()
}

func TestNobodyIsInsideAfterTheClose(t *testing.T) {
	for range 200 {
		var g gate
		var closed atomic.Bool
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				for {
					inside, ok := g.enter()
					if !ok {
						return
					}
					if closed.Load() {
						t.Error("a reader is inside a closed gate")
					}
					inside.Add(-1)
				}
			})
		}
		g.close()
		closed.Store(true)
		readers.Wait()
	}
}

// ristretto panics where a read meets its Close, and where it is closed twice.
func TestB115_CallsMeetTwoCloses(t *testing.T) {
	const rounds = 500
	for range rounds {
		c, err := New("user", always[int](7), minute.with(setting{"LocalMaxBytes", smallBudget}))
		must(t, err)
		var all sync.WaitGroup
		begin := make(chan struct{})
		for i := range 8 {
			all.Go(func() {
				<-begin
				for n := range 20 {
					if err := oneCall(t, c, i+n); err != nil && !errors.Is(err, ErrClosed) {
						t.Errorf("error %v", err)
					}
				}
			})
		}
		for range 2 {
			all.Go(func() {
				<-begin
				for range 5 {
					runtime.Gosched()
				}
				if err := c.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
		close(begin)
		all.Wait()
		_, err = c.Get(t.Context(), 0)
		isErr(t, err, ErrClosed)
	}
}

// oneCall makes one of the calls there are.
func oneCall(t *testing.T, c *Cache[int, int], n int) error {
	ctx, key := t.Context(), n%10
	switch n % 7 {
	case 0:
		return c.Set(ctx, key, n)
	case 1:
		return c.Delete(ctx, key)
	case 2:
		return c.Expire(ctx, key)
	case 3:
		_, _, err := c.Peek(ctx, key)
		return err
	case 4:
		_ = fmt.Sprint(c.Stats(), c.RedisKey(key))
		return nil
	default:
		_, err := c.Get(ctx, key)
		return err
	}
}
