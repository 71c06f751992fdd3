package cache_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
)

// Our failed load is remembered for ErrorBackoff on all nodes, so that a database that makes
// loads panic is left alone: node 2 is told at once, and loads when that time is over. Without
// a back-off it loads at once, as the case has it.
func TestB20_APanicInTheLoaderFreesItsKey(t *testing.T) {
	for _, tc := range []struct {
		name    string
		backoff time.Duration
	}{{"with a back-off", 500 * time.Millisecond}, {"without", cache.Off}} {
		t.Run(tc.name, func(t *testing.T) {
			o := settings()
			o.ErrorBackoff = tc.backoff
			inBubble(t, 2, o, func(t *testing.T, f *fleet) {
				f.query = brokenOnce(func() { panic("no such column") })
				here := start(t.Context(), 51, "k", f.nodes[0])
				time.Sleep(time.Millisecond)
				there := start(t.Context(), 50, "k", f.nodes[1])
				for _, g := range here.wait() {
					p, ok := errors.AsType[*loader.PanicError](g.err)
					if !ok || p.Value != "no such column" || !strings.Contains(string(p.Stack), "brokenOnce") {
						t.Fatalf("a caller on the loading node got %v", g.err)
					}
					equal(t, "took", g.took, 50*time.Millisecond)
				}
				if tc.backoff == cache.Off {
					allGet(t, there.wait(), value("k", 1), 59*time.Millisecond)
				} else {
					allAreTold(t, there.wait(), "no such column", 49*time.Millisecond)
				}
				equal(t, "leases", f.leases(), 0)
				time.Sleep(max(0, tc.backoff))
				for _, n := range f.nodes {
					gets(t, n, "k", value("k", 1))
				}
				equal(t, "loads", f.queries(), 2)
			})
		})
	}
}

func TestB22_ALoaderThatEndsItsGoroutineFreesItsKey(t *testing.T) {
	for _, where := range places {
		t.Run(where.name, func(t *testing.T) {
			inBubble(t, where.nodes, settings(), func(t *testing.T, f *fleet) {
				f.query = brokenOnce(runtime.Goexit)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				here := start(ctx, 21, "k", f.nodes[0])
				time.Sleep(time.Millisecond)
				for _, other := range f.nodes[1:] {
					allAreTold(t, start(ctx, 20, "k", other).wait(), loader.ErrGoexit.Error(), 49*time.Millisecond)
				}
				for _, g := range here.wait() {
					if !errors.Is(g.err, loader.ErrGoexit) || g.took != 50*time.Millisecond {
						t.Fatalf("a joiner got %v after %v, want ErrGoexit after 50ms", g.err, g.took)
					}
				}
				equal(t, "leases", f.leases(), 0)
				time.Sleep(500 * time.Millisecond) // ErrorBackoff
				gets(t, f.nodes[0], "k", value("k", 1))
				equal(t, "loads", f.queries(), 2)
			})
		})
	}
}

// brokenOnce is a query that does as broken does after 50 ms the first time, and then takes
// 10 ms.
func brokenOnce(broken func()) func(context.Context, string, int) error {
	return func(ctx context.Context, _ string, n int) error {
		if n > 1 {
			return pass(ctx, 10*time.Millisecond)
		}
		_ = pass(ctx, 50*time.Millisecond)
		broken()
		return nil
	}
}

// allAreTold checks that every caller was told of a failure on another node, and when.
func allAreTold(t *testing.T, all []got, message string, after time.Duration) {
	t.Helper()
	for _, g := range all {
		e, ok := errors.AsType[*cache.BackoffError](g.err)
		if !ok || !e.Remote || !strings.Contains(e.Message, message) || e.RetryAfter <= 0 || g.value != "" || g.took != after {
			t.Fatalf("a caller on another node got %q, %v after %v, want a BackoffError about %q after %v",
				g.value, g.err, g.took, message, after)
		}
	}
}

// Part (c) of B21: the worker of an early refresh. The value is served to its end, fresh, and the
// panic is a failure like any other: it is counted, logged with its stack, and left alone for the
// back-off.
func TestB21_APanicInAnEarlyRefreshLeavesTheValue(t *testing.T) {
	o := settings()
	o.EarlyRefresh = 100
	var log journal
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	alike(t, o, func(t *testing.T, s *source, n *node) {
		s.query = takes(50 * time.Millisecond)
		gets(t, n, "k", value("k", 1))
		s.query = func(context.Context, string, int) error { panic("no such column") }
		time.Sleep(9900 * time.Millisecond)
		for range 9 {
			e, err := n.GetEntry(t.Context(), "k")
			must(t, err)
			equal(t, "value", e.Value, value("k", 1))
			equal(t, "state", e.State, cache.StateFresh)
			time.Sleep(10 * time.Millisecond)
		}
		stats := n.Stats()
		equal(t, "early refreshes", stats.EarlyRefreshes, 1)
		equal(t, "failures", stats.Failures, 1)
		log.says(t, "a load panicked", "no such column", "stack=")
	})
}

func TestB21_TheStackOfABatchThatPanickedIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := settings()
		var log journal
		o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		batch := func(context.Context, []string) (map[string]string, error) { panic("no such column") }
		c, err := cache.New("batched", loader.Coalesce(batch, 0, time.Millisecond), o)
		must(t, err)
		defer c.Close()
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				if _, err := c.Get(t.Context(), fmt.Sprint(i)); err == nil {
					t.Error("a value came of a panic")
				}
			})
		}
		all.Wait()
		log.mu.Lock()
		defer log.mu.Unlock()
		equal(t, "failures logged", strings.Count(log.text.String(), "no such column"), 50)
		equal(t, "stacks", strings.Count(log.text.String(), "stack="), 1)
	})
}
