package link

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/sony/gobreaker/v2"

	"github.com/levee-cache/levee/internal/redistest"
)

// outcomes makes one call each that ends with the error, and counts how many were let through.
func outcomes(t *testing.T, l *Link, class Class, errs ...error) (ran int) {
	t.Helper()
	for _, want := range errs {
		_, err := Call(t.Context(), l, within(time.Second), class, func(context.Context) (int, error) {
			ran++
			return 0, want
		})
		if want != nil && err == nil {
			t.Errorf("%v was lost", want)
		}
	}
	return ran
}

// silences are n calls without an answer.
func silences(n int) (errs []error) {
	for range n {
		errs = append(errs, redistest.ErrTimeout)
	}
	return errs
}

func isOpen(t *testing.T, l *Link) bool {
	t.Helper()
	return outcomes(t, l, Spared, nil) == 0
}

func noDial(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed }

// trip opens the breaker: after a while of quiet, three calls find no answer. It is for a bubble.
func trip(t *testing.T, l *Link) {
	t.Helper()
	time.Sleep(tripQuiet)
	equal(t, "calls let through until it opens", outcomes(t, l, Spared, silences(tripAfter+2)...), tripAfter)
}

func inBreakerBubble(t *testing.T, f func(t *testing.T, l *Link)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: noDial})
		t.Cleanup(func() { _ = c.Close() })
		f(t, open(t, c))
	})
}

func TestThreeSilencesOpenTheBreaker(t *testing.T) {
	inBreakerBubble(t, func(t *testing.T, l *Link) {
		trip(t, l)
		_, err := get(t.Context(), l, within(time.Second), Spared)
		isErr(t, err, ErrUnavailable)
		isErr(t, err, gobreaker.ErrOpenState)
	})
}

// Many calls at once are late after a stall of this process: that is no reason to spare them.
func TestAStallSoonAfterAnAnswerDoesNotOpenTheBreaker(t *testing.T) {
	inBreakerBubble(t, func(t *testing.T, l *Link) {
		time.Sleep(time.Minute)
		equal(t, "calls let through", outcomes(t, l, Spared, append([]error{nil}, silences(50)...)...), 51)
		time.Sleep(tripQuiet - 1)
		equal(t, "calls let through just before the time", outcomes(t, l, Spared, silences(2)...), 2)
		time.Sleep(time.Nanosecond)
		equal(t, "calls let through after it", outcomes(t, l, Spared, silences(2)...), 1)
	})
}

func TestSpentBudgetsOpenTheBreaker(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		_, err := get(t.Context(), l, within(time.Second), Spared)
		isErr(t, err, redis.Nil)
		b.Freeze()
		began := time.Now()
		for range 20 {
			_, err := get(t.Context(), l, within(100*time.Millisecond), Spared)
			isErr(t, err, ErrUnavailable)
		}
		took(t, began, tripQuiet)
		b.Thaw()
	})
}

func TestAnAnswerBetweenSilencesKeepsTheBreakerClosed(t *testing.T) {
	inBreakerBubble(t, func(t *testing.T, l *Link) {
		for range 5 {
			time.Sleep(tripQuiet)
			equal(t, "calls let through", outcomes(t, l, Spared, append(silences(tripAfter-1), nil)...), tripAfter)
		}
	})
}

func TestWhatSaysNothingOfRedisDoesNotOpenTheBreaker(t *testing.T) {
	for situation, err := range map[string]error{
		"nothing there":               redis.Nil,
		"a server's error":            redistest.ReplyError("WRONGTYPE Operation against a key"),
		"a wrapped server's error":    errors.Join(errors.New("get"), redistest.ReplyError("ERR no")),
		"a cancelled caller":          context.Canceled,
		"a cancelled caller, wrapped": errors.Join(errors.New("get"), context.Canceled),
	} {
		t.Run(situation, func(t *testing.T) {
			inBreakerBubble(t, func(t *testing.T, l *Link) {
				for range 5 {
					time.Sleep(tripQuiet)
					outcomes(t, l, Spared, err)
				}
				equal(t, "breaker open", isOpen(t, l), false)
			})
		})
	}
}

// A caller that has no time says nothing of Redis, and must not cost the others theirs.
func TestCallersWhoLeaveDoNotOpenTheBreaker(t *testing.T) {
	for situation, leaving := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"by cancelling": func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Microsecond, cancel)
			return ctx, cancel
		},
		"by a deadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Microsecond)
		},
		"by a deadline with a cause of their own": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeoutCause(ctx, time.Microsecond, errors.New("lunch"))
		},
		"before they call": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, -1)
		},
	} {
		t.Run(situation, func(t *testing.T) {
			inBreakerBubble(t, func(t *testing.T, l *Link) {
				for range 2 * tripAfter {
					ctx, cancel := leaving(t.Context())
					_, err := Call(ctx, l, within(time.Second), Spared, func(context.Context) (int, error) {
						time.Sleep(time.Millisecond)
						return 0, nil
					})
					cancel()
					if err == nil {
						t.Error("the call was waited for")
					}
					time.Sleep(tripQuiet)
				}
				equal(t, "breaker open", isOpen(t, l), false)
			})
		})
	}
}

func TestUrgentCallsGoPastTheBreaker(t *testing.T) {
	inBreakerBubble(t, func(t *testing.T, l *Link) {
		trip(t, l)
		equal(t, "urgent calls let through", outcomes(t, l, Urgent, nil, nil, redistest.ErrTimeout), 3)
		equal(t, "breaker open after them", isOpen(t, l), true)
	})
}

func TestUrgentCallsDoNotOpenTheBreaker(t *testing.T) {
	inBreakerBubble(t, func(t *testing.T, l *Link) {
		for range 10 {
			time.Sleep(tripQuiet)
			outcomes(t, l, Urgent, redistest.ErrTimeout)
		}
		equal(t, "breaker open", isOpen(t, l), false)
	})
}

func TestAnOpenBreakerProbesWithOneCallAtATime(t *testing.T) {
	inBreakerBubble(t, func(t *testing.T, l *Link) {
		trip(t, l)
		time.Sleep(probeEvery)
		equal(t, "open for a second", isOpen(t, l), true)
		time.Sleep(time.Millisecond)

		answer := make(chan error)
		var probes, refused int
		var mu sync.Mutex // guards both
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				_, err := Call(t.Context(), l, within(time.Minute), Spared, func(context.Context) (int, error) {
					mu.Lock()
					probes++
					mu.Unlock()
					return 0, <-answer
				})
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, gobreaker.ErrTooManyRequests) {
					refused++
				}
			})
		}
		synctest.Wait()
		mu.Lock()
		equal(t, "probes", probes, 1)
		equal(t, "refused", refused, 9)
		mu.Unlock()
		answer <- nil
		callers.Wait()
		equal(t, "calls let through after a good probe", outcomes(t, l, Spared, nil, nil, nil), 3)
	})
}

func TestAFailedProbeLeavesTheBreakerOpenForAnotherSecond(t *testing.T) {
	inBreakerBubble(t, func(t *testing.T, l *Link) {
		trip(t, l)
		for range 3 {
			time.Sleep(probeEvery + time.Millisecond)
			equal(t, "calls let through", outcomes(t, l, Spared, silences(4)...), 1)
		}
		time.Sleep(probeEvery + time.Millisecond)
		equal(t, "calls let through when Redis is back", outcomes(t, l, Spared, nil, nil, nil), 3)
	})
}

func TestAProbeWhoseCallerLeavesMakesRoomForAnother(t *testing.T) {
	inBreakerBubble(t, func(t *testing.T, l *Link) {
		trip(t, l)
		time.Sleep(probeEvery + time.Millisecond)
		outcomes(t, l, Spared, context.Canceled)
		equal(t, "calls let through", outcomes(t, l, Spared, nil, nil), 2)
	})
}
