package redistest

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"
)

// TB is what this package needs of a *testing.T or *testing.B.
type TB interface {
	Helper()
	Name() string
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Eventually polls cond until it holds, and fails the test at once when it
// still does not after timeout. what describes the condition, in the manner of
// fmt.Sprint. cond runs in the caller's goroutine.
func Eventually(t TB, timeout time.Duration, cond func() bool, what ...any) {
	t.Helper()
	if !poll(timeout, cond) {
		t.Fatalf("not true within %v: %s", timeout, fmt.Sprint(what...))
	}
}

// poll asks cond every few milliseconds and reports whether it came true.
func poll(timeout time.Duration, cond func() bool) bool {
	late := time.NewTimer(timeout)
	defer late.Stop()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-late.C:
			return cond()
		}
	}
	return true
}

// Prefix returns a text that no other test has, for names of keys and
// channels. Channels are shared by all databases of a server, so tests that run
// in parallel on one need it.
func Prefix(t TB) string {
	return t.Name() + "-" + rand.Text()[:8]
}
