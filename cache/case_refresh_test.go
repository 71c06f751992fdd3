package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/cache"
)

// journal is what a service's log comes to be. It is safe for concurrent use.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) says(t *testing.T, parts ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, part := range parts {
		if !strings.Contains(j.text.String(), part) {
			t.Errorf("the log does not say %q: %s", part, &j.text)
		}
	}
}

// panicking runs body on a node with Redis and on one without, in a bubble, where a load panics
// after 50 ms as often as body asks for it.
func panicking(t *testing.T, body func(t *testing.T, s *source, n *node, j *journal)) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprint("with Redis: ", shared), func(t *testing.T) {
			j, o := &journal{}, settings()
			o.Logger = slog.New(slog.NewTextHandler(j, nil))
			inBubble(t, 0, o, func(t *testing.T, f *fleet) {
				if shared {
					f.grow(1)
					body(t, f.source, f.nodes[0], j)
				} else {
					body(t, f.source, local(t, f.source, o), j)
				}
			})
		})
	}
}

// leftLoad is a load that panics after its caller has left, and after that a good one. It is for
// use in a bubble.
func leftLoad(t *testing.T, s *source, n *node) {
	t.Helper()
	s.query = brokenOnce(func() { panic("no such column") })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	g := start(ctx, 1, "k", n).wait()[0]
	if !errors.Is(g.err, context.DeadlineExceeded) || g.took != 10*time.Millisecond {
		t.Errorf("got %v after %v, want to leave after 10ms", g.err, g.took)
	}
	time.Sleep(50*time.Millisecond + 500*time.Millisecond) // the load and ErrorBackoff
	gets(t, n, "k", value("k", 1))
}

// staleRefresh is a refresh that panics behind the back of callers, who are served all the
// while, and then one that does not. It is for use in a bubble.
func staleRefresh(t *testing.T, s *source, n *node) {
	t.Helper()
	gets(t, n, "k", value("k", 1))
	s.query = func(ctx context.Context, _ string, n int) error {
		return brokenOnce(func() { panic("no such column") })(ctx, "", n-1)
	}
	time.Sleep(11 * time.Second)
	v2 := s.write("k")
	seen := firstSeen(t, n, "k", v2, 10*time.Millisecond, 2*time.Second)
	within(t, "until the new value is seen", seen, 50*time.Millisecond+500*time.Millisecond+30*time.Millisecond)
	equal(t, "loads", s.queries(), 3)
}

// Right for (a) and (b): the process survives, as this test does; the panic value reaches the
// log, a counter rises; stale goes on being served. Our documented back-off follows the panic.
func TestB21_APanicThatNobodyWaitsForIsCountedAndLogged(t *testing.T) {
	for name, schedule := range map[string]func(*testing.T, *source, *node){
		"in a load whose caller has left": leftLoad,
		"in a stale refresh":              staleRefresh,
	} {
		t.Run(name, func(t *testing.T) {
			panicking(t, func(t *testing.T, s *source, n *node, j *journal) {
				schedule(t, s, n)
				equal(t, "failures", n.Stats().Failures, 1)
				j.says(t, "no such column", "key=")
			})
		})
	}
}

// Right for (a) and (b): the stack reaches the log, too. No caller has got the error that
// carries it.
func TestB21_TheStackOfAPanicThatNobodyWaitsForIsLogged(t *testing.T) {
	for name, schedule := range map[string]func(*testing.T, *source, *node){
		"in a load whose caller has left": leftLoad,
		"in a stale refresh":              staleRefresh,
	} {
		t.Run(name, func(t *testing.T) {
			panicking(t, func(t *testing.T, s *source, n *node, j *journal) {
				schedule(t, s, n)
				j.says(t, "brokenOnce", "case_panic_test.go")
			})
		})
	}
}

// queryError is an error of the kind that is often returned as a nil pointer by mistake: it is
// not nil then, and none of its methods can be called.
type queryError struct{ cause error }

func (e *queryError) Error() string { return e.cause.Error() }
func (e *queryError) Unwrap() error { return e.cause }

// askedError looks at itself when it is asked what it is.
type askedError struct{ code int }

func (e *askedError) Error() string { return "asked" }

func (e *askedError) As(any) bool { return e.code == 1 }

// hostile are loads whose result panics in whoever looks at it, not in the loader.
var hostile = map[string]func() error{
	"a nil pointer as an error":         func() error { var e *queryError; return e },
	"a nil pointer asked what it is":    func() error { var e *askedError; return e },
	"an error whose text panics":        func() error { return &queryError{} },
	"an error whose panic is no string": func() error { panic(&queryError{}) },
}

const hostileVar = "LEVEE_TEST_HOSTILE"

// Right: the process survives what a loader hands out as well as the loader's own panic. It is a
// process of its own, since it would take all other tests with it.
func TestB21_AnErrorWhoseMethodsPanicLeavesTheProcessAlive(t *testing.T) {
	if name, ok := os.LookupEnv(hostileVar); ok {
		inHostility(t, hostile[name])
		return
	}
	for name := range hostile {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestB21_AnErrorWhoseMethodsPanicLeavesTheProcessAlive$")
			child.Env = append(os.Environ(), hostileVar+"="+name)
			if out, err := child.CombinedOutput(); err != nil {
				head, _, _ := strings.Cut(string(out), "\n\n\n")
				t.Errorf("the process ended with %v:\n%.1500s", err, head)
			}
		})
	}
}

// inHostility meets the result in a load with a caller and in a stale refresh, with and without
// Redis, in a bubble.
func inHostility(t *testing.T, result func() error) {
	panicking(t, func(t *testing.T, s *source, n *node, _ *journal) {
		broken := true
		s.query = func(context.Context, string, int) error {
			if broken {
				return result()
			}
			return nil
		}
		if _, err := n.Get(t.Context(), "k"); err == nil {
			t.Error("the caller got no error")
		}
		broken = false
		time.Sleep(500 * time.Millisecond) // ErrorBackoff
		gets(t, n, "k", value("k", 1))
		broken = true
		time.Sleep(11 * time.Second)
		gets(t, n, "k", value("k", 1))
		time.Sleep(50 * time.Millisecond)
		equal(t, "failures", n.Stats().Failures, 2)
	})
}

// aged is an entry with 10 s to live, from now, in Redis and with the first of two nodes. The
// second knows the server's clock, or not: it reads in another way then.
func aged(t *testing.T, o cache.Options, known bool, body func(t *testing.T, f *fleet, b *node)) {
	t.Helper()
	inBubble(t, 2, o, func(t *testing.T, f *fleet) {
		f.query = takes(0)
		gets(t, f.nodes[0], "k", value("k", 1))
		if known {
			gets(t, f.nodes[1], "other", value("other", 1))
		}
		f.write("k")
		body(t, f, f.nodes[1])
	})
}

// locally checks that a value came from memory and that Redis was not asked for it.
func (f *fleet) locally(t *testing.T, n *node, key string, want string, state cache.State) {
	t.Helper()
	before := f.begun("get", "getrange", "evalsha", "eval", "time")
	e, err := n.GetEntry(t.Context(), key)
	if e.Value != want || e.Source != cache.SourceLocal || e.State != state || err != nil {
		t.Errorf("got %+v, %v, want %s from memory, %v", e, err, want, state)
	}
	if state == cache.StateFresh {
		synctest.Wait()
		equal(t, "calls to Redis", f.begun("get", "getrange", "evalsha", "eval", "time")-before, 0)
	}
}

// Right: an L1 hit while it is fresh, and stale from 10 s on. As nodes do not tell each other of
// invalidations yet, LocalTTL is 1 s where the case has 5 s, so the case's 9.0, 9.5 and 10.5 s
// become 9.5, 9.75 and 10.25 s of the bubble's clock: still LocalTTL outlasts what is left.
func TestB52_WhatIsReadLateIsBelievedOnlyForWhatIsLeft(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint("the server's clock is known: ", known), func(t *testing.T) {
			o := settings()
			o.LocalTTL = 5 * time.Second
			aged(t, o, known, func(t *testing.T, f *fleet, b *node) {
				time.Sleep(9500 * time.Millisecond)
				e, err := b.GetEntry(t.Context(), "k")
				if e.Value != value("k", 1) || e.Source != cache.SourceRemote || e.State != cache.StateFresh || err != nil {
					t.Errorf("got %+v, %v, want the fresh value from Redis", e, err)
				}
				equal(t, "age", e.Age.Round(time.Millisecond), 9500*time.Millisecond)
				time.Sleep(250 * time.Millisecond)
				f.locally(t, b, "k", value("k", 1), cache.StateFresh)
				time.Sleep(500 * time.Millisecond)
				f.locally(t, b, "k", value("k", 1), cache.StateStale)
				synctest.Wait()
				equal(t, "loads", f.queries("k"), 2)
				gets(t, b, "k", value("k", 2))
			})
		})
	}
}

// The same where nothing stale is served: then the copy is gone with the entry. In a bubble, too.
func TestB52_WithNoStaleWindowTheCopyEndsWithTheEntry(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint("the server's clock is known: ", known), func(t *testing.T) {
			o := settings()
			o.LocalTTL, o.StaleWhileRevalidate = 5*time.Second, cache.Off
			aged(t, o, known, func(t *testing.T, f *fleet, b *node) {
				time.Sleep(9500 * time.Millisecond)
				gets(t, b, "k", value("k", 1))
				time.Sleep(499 * time.Millisecond)
				f.locally(t, b, "k", value("k", 1), cache.StateFresh)
				time.Sleep(2 * time.Millisecond)
				gets(t, b, "k", value("k", 2))
				equal(t, "loads", f.queries("k"), 2)
			})
		})
	}
}

// The other side of the minimum: with much left it is LocalTTL, as is seen from a DEL that this
// node hears nothing of. In a bubble, too.
func TestB52_WithMuchLeftTheCopyIsBelievedForLocalTTL(t *testing.T) {
	aged(t, settings(), true, func(t *testing.T, f *fleet, b *node) {
		time.Sleep(5 * time.Second)
		gets(t, b, "k", value("k", 1))
		must(t, f.probe.Del(t.Context(), b.RedisKey("k")).Err())
		time.Sleep(750 * time.Millisecond)
		f.locally(t, b, "k", value("k", 1), cache.StateFresh)
		time.Sleep(251 * time.Millisecond)
		gets(t, b, "k", value("k", 2))
	})
}

// outage is a source that fails after 20 ms and then recovers, and when it was asked.
type outage struct {
	mu       sync.Mutex
	began    time.Time
	over     bool
	attempts []time.Duration
}

var errSourceDown = errors.New("no route to the database")

func (o *outage) query(ctx context.Context, _ string, _ int) error {
	o.mu.Lock()
	o.attempts = append(o.attempts, time.Since(o.began))
	over := o.over
	o.mu.Unlock()
	_ = pass(ctx, 20*time.Millisecond)
	if over {
		return nil
	}
	return errSourceDown
}

func (o *outage) recover() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
}

// during calls three nodes in turn for as long as the source is down, and goes on until all
// have the value. each sees what every call before the recovery has got.
func during(t *testing.T, backoff, down time.Duration, each func(got)) (f *fleet, out *outage, recovery time.Duration) {
	t.Helper()
	perSecond := soak(200, 1000)
	o := settings()
	o.ErrorBackoff = backoff
	inBubble(t, 3, o, func(t *testing.T, fl *fleet) {
		f, out = fl, &outage{began: time.Now()}
		f.query = out.query
		all := &calls{}
		for i := 0; time.Since(out.began) < down; i++ {
			all.get(t.Context(), f.nodes[i%3], "k")
			time.Sleep(time.Second / time.Duration(perSecond))
		}
		out.recover()
		for {
			for _, g := range start(t.Context(), 3, "k", f.nodes...).wait() {
				if g.err == nil {
					recovery = time.Since(out.began) - down
				}
			}
			if recovery > 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		for _, n := range f.nodes {
			gets(t, n, "k", value("k", 1))
		}
		for _, g := range all.wait() {
			each(g)
		}
	})
	return f, out, recovery
}

// Right: about two attempts a second and node at most, the last error at once for everybody
// else, recovery within one back-off. Ours is one back-off for all nodes together, doubling from
// 500 ms to 5 s and shortened by up to a fifth: the attempts are that far apart.
func TestB57_WithABackoffAFailingSourceIsLeftAlone(t *testing.T) {
	paid := 0
	f, out, recovery := during(t, 500*time.Millisecond, time.Duration(soak(12, 30))*time.Second, func(g got) {
		refused, ok := errors.AsType[*cache.BackoffError](g.err)
		switch {
		case ok && strings.Contains(refused.Message, errSourceDown.Error()) && refused.RetryAfter > 0:
			if g.took > 20*time.Millisecond { // those who waited for another node's attempt
				t.Errorf("a caller was refused after %v", g.took)
			}
		case !errors.Is(g.err, errSourceDown) || g.took > 20*time.Millisecond:
			t.Errorf("a caller got %v after %v", g.err, g.took)
		}
		if g.took > 0 {
			paid++
		}
	})
	for i, at := range out.attempts[1:] {
		longest := min(500*time.Millisecond<<min(i, 8), 5*time.Second)
		gap := at - out.attempts[i] - 20*time.Millisecond
		if gap < longest*4/5-time.Millisecond || gap > longest+10*time.Millisecond {
			t.Errorf("attempt %d came %v after the end of the one before, want up to %v", i+2, gap, longest)
		}
	}
	if limit := (soak(200, 1000)/50 + 1) * len(out.attempts); paid > limit { // who came in 20 ms
		t.Errorf("%d callers waited for %d attempts, want %d at most", paid, len(out.attempts), limit)
	}
	within(t, "recovery", recovery, 5*time.Second+50*time.Millisecond)
	equal(t, "loads at once", f.peak(), 1)
	t.Logf("attempts at %v, recovery after %v, %d callers waited", out.attempts, recovery, paid)
}

// Right without a back-off: one attempt at a time and node. Ours is one at a time in the fleet.
// Its nodes take turns in no order, so a caller may wait for some attempts of others.
func TestB57_WithoutABackoffAttemptsTakeTurns(t *testing.T) {
	slowest := time.Duration(0)
	f, out, recovery := during(t, cache.Off, time.Duration(soak(3, 30))*time.Second, func(g got) {
		slowest = max(slowest, g.took)
		if g.err != nil && !errors.Is(g.err, errSourceDown) {
			t.Errorf("a caller got %v", g.err)
		}
	})
	equal(t, "loads at once", f.peak(), 1)
	equal(t, "attempts are many", len(out.attempts) > 100, true)
	within(t, "the slowest caller", slowest, time.Second)
	within(t, "recovery", recovery, 500*time.Millisecond)
	t.Logf("%d attempts, slowest caller %v, recovery after %v", len(out.attempts), slowest, recovery)
}
