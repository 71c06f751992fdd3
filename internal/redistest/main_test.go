package redistest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(Main(m, map[string]func(){
		"echo":   echoNode,
		"parent": parentNode,
		"fails":  func() { fmt.Fprintln(os.Stderr, "a complaint"); os.Exit(3) },
	}))
}

// longEnough bounds waits for what is expected to happen soon.
const longEnough = 20 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// recorder is a TB that notes how the function under test ended it.
type recorder struct {
	TB
	log, fatal, skip string
	cleanups         []func()
}

// record runs f with a recorder, as the testing package would run a test.
func record(t *testing.T, f func(TB)) *recorder {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(r.cleanups) - 1; i >= 0; i-- {
				r.cleanups[i]()
			}
		}()
		f(r)
	}()
	<-done
	return r
}

func (r *recorder) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Logf(format string, a ...any) { r.log += fmt.Sprintf(format, a...) }
func (r *recorder) Fatalf(format string, a ...any) {
	r.fatal = fmt.Sprintf(format, a...)
	runtime.Goexit()
}
func (r *recorder) Skipf(format string, a ...any) {
	r.skip = fmt.Sprintf(format, a...)
	runtime.Goexit()
}

func TestEventuallyReturnsWhenTheConditionHoldsAndFailsWhenItNeverDoes(t *testing.T) {
	n := 0
	Eventually(t, longEnough, func() bool { n++; return n == 3 })
	equal(t, "polls", n, 3)
	r := record(t, func(t TB) {
		Eventually(t, 10*time.Millisecond, func() bool { return false }, "pigs fly")
	})
	if !strings.Contains(r.fatal, "pigs fly") {
		t.Fatalf("ended with %q", r.fatal)
	}
}
