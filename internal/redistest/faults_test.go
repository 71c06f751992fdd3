package redistest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// faulty runs f with a client that has faults and one that has none, in a
// bubble and against a shared server.
func faulty(t *testing.T, f func(t *testing.T, faults *Faults, c, other *redis.Client)) {
	t.Run("bubble", func(t *testing.T) {
		bubble(t, func(t *testing.T, b *BubbleServer) { withFaults(t, b.Client(t), b.Client(t), f) })
	})
	t.Run("server", func(t *testing.T) {
		s := Shared(t)
		withFaults(t, s.Client(t), s.Client(t), f)
	})
}

func withFaults(t *testing.T, c, other *redis.Client, f func(*testing.T, *Faults, *redis.Client, *redis.Client)) {
	faults := NewFaults(t)
	c.AddHook(faults)
	f(t, faults, c, other)
}

func TestAFailedCommandIsNotExecuted(t *testing.T) {
	faulty(t, func(t *testing.T, f *Faults, c, other *redis.Client) {
		rule := f.Fail(Name("set"), ReplyError("OOM command not allowed when used memory > 'maxmemory'.")).Times(1)
		if err := c.Set(t.Context(), "k", "v", 0).Err(); !redis.IsOOMError(err) {
			t.Fatalf("got %v", err)
		}
		equal(t, "exists", other.Exists(t.Context(), "k").Val(), 0)
		must(t, c.Set(t.Context(), "k", "v", 0).Err())
		equal(t, "count", rule.Count(), 1)
	})
}

func TestALostReplyMeansExecutedAndUnknown(t *testing.T) {
	faulty(t, func(t *testing.T, f *Faults, c, other *redis.Client) {
		f.LoseReply(Name("incr")).Times(1)
		n, err := c.Incr(t.Context(), "n").Result()
		if !errors.Is(err, ErrTimeout) || n != 0 {
			t.Fatalf("got %d, %v", n, err)
		}
		equal(t, "count", other.Get(t.Context(), "n").Val(), "1")
	})
}

func TestALateFirstAttemptArrivesAfterItsRetry(t *testing.T) {
	faulty(t, func(t *testing.T, f *Faults, c, other *redis.Client) {
		rule := f.Late(Contains("first")).Times(1)
		if err := c.Set(t.Context(), "k", "first", 0).Err(); !errors.Is(err, ErrTimeout) {
			t.Fatalf("got %v", err)
		}
		must(t, c.Set(t.Context(), "k", "second", 0).Err())
		done := rule.Release(t.Context())
		equal(t, "commands", len(done), 1)
		equal(t, "reply", done[0].Val(), any("OK"))
		equal(t, "value", other.Get(t.Context(), "k").Val(), "first")
	})
}

func TestARepeatedCommandIsExecutedAgainOnRelease(t *testing.T) {
	faulty(t, func(t *testing.T, f *Faults, c, other *redis.Client) {
		rule := f.Repeat(Name("incr"))
		n, err := c.Incr(t.Context(), "n").Result()
		must(t, err)
		equal(t, "first", n, 1)
		done := rule.Release(t.Context())
		equal(t, "again", done[0].Val(), any(int64(2)))
		must(t, c.Incr(t.Context(), "n").Err())
		equal(t, "kept after release", len(rule.Release(t.Context())), 0)
	})
}

func TestAHeldCommandWaitsForItsRelease(t *testing.T) {
	faulty(t, func(t *testing.T, f *Faults, c, other *redis.Client) {
		rule := f.Hold(Name("set")).Times(1)
		var wg sync.WaitGroup
		var err error
		wg.Go(func() { err = c.Set(t.Context(), "k", "held", 0).Err() })
		must(t, rule.Wait(t.Context()))
		must(t, c.Set(t.Context(), "k", "passed", 0).Err())
		equal(t, "value", other.Get(t.Context(), "k").Val(), "passed")
		rule.Release(t.Context())
		wg.Wait()
		must(t, err)
		equal(t, "value", other.Get(t.Context(), "k").Val(), "held")
	})
}

func TestScriptsAreMatchedByHashAndByText(t *testing.T) {
	script, another := redis.NewScript(`return 1`), redis.NewScript(`return 2`)
	faulty(t, func(t *testing.T, f *Faults, c, _ *redis.Client) {
		rule := f.Fail(All(Script(script), Contains("key")), nil)
		for _, run := range []func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd{script.Eval, script.EvalSha} {
			if err := run(t.Context(), c, []string{"key"}).Err(); !errors.Is(err, ErrTimeout) {
				t.Fatalf("got %v", err)
			}
			must(t, another.Run(t.Context(), c, []string{"key"}).Err())
			must(t, script.Run(t.Context(), c, []string{"other"}).Err())
		}
		equal(t, "count", rule.Count(), 2)
	})
}

func TestAPipelineIsOneUnit(t *testing.T) {
	for name, run := range map[string]func(*redis.Client, context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error){
		"pipeline":    (*redis.Client).Pipelined,
		"transaction": (*redis.Client).TxPipelined,
	} {
		t.Run(name, func(t *testing.T) {
			faulty(t, func(t *testing.T, f *Faults, c, other *redis.Client) {
				rule := f.Late(Contains("b")).Times(1)
				both := func(p redis.Pipeliner) error {
					p.Incr(t.Context(), "a")
					p.Incr(t.Context(), "b")
					return nil
				}
				cmds, err := run(c, t.Context(), both)
				if !errors.Is(err, ErrTimeout) || !errors.Is(cmds[0].Err(), ErrTimeout) {
					t.Fatalf("got %v and %v", err, cmds[0].Err())
				}
				_, err = run(c, t.Context(), both)
				must(t, err)
				done := rule.Release(t.Context())
				equal(t, "commands", len(done), 2)
				equal(t, "a", other.Get(t.Context(), "a").Val(), "2")
				equal(t, "b", other.Get(t.Context(), "b").Val(), "2")
			})
		})
	}
}

func TestADelayCostsItsTimeWhateverTheContextSays(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		c, f := b.Client(t), NewFaults(t)
		c.AddHook(f)
		f.Delay(Name("ping"), 3*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_ = c.Ping(ctx).Err()
		equal(t, "took", time.Since(start), 3*time.Second)
		must(t, c.Ping(t.Context()).Err())
	})
}

func TestAnObedientDelayEndsWithTheContext(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		c, f := b.Client(t), NewFaults(t)
		c.AddHook(f)
		f.ObeyContext = true
		f.Hang(Any, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if err := c.Ping(ctx).Err(); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v", err)
		}
		equal(t, "took", time.Since(start), time.Second)
	})
}

func TestAHungCommandEndsWhenItsTimeIsOverOrItsRuleIsCleared(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		c, f := b.Client(t), NewFaults(t)
		c.AddHook(f)
		hang := f.Hang(Any, time.Minute)
		start := time.Now()
		if err := c.Ping(t.Context()).Err(); !errors.Is(err, ErrTimeout) {
			t.Fatalf("got %v", err)
		}
		equal(t, "took", time.Since(start), time.Minute)
		hang.Clear()
		forever := f.Hang(Any, 0)
		time.AfterFunc(time.Second, forever.Clear)
		if err := c.Ping(t.Context()).Err(); !errors.Is(err, ErrTimeout) {
			t.Fatalf("got %v", err)
		}
		must(t, c.Ping(t.Context()).Err())
	})
}

func TestTheEndOfATestFreesWhatIsHung(t *testing.T) {
	var err error
	bubble(t, func(t *testing.T, b *BubbleServer) {
		c, f := b.Client(t), NewFaults(t)
		c.AddHook(f)
		f.Hang(Any, 0)
		go func() { err = c.Ping(context.WithoutCancel(t.Context())).Err() }()
		synctest.Wait()
	})
	if !errors.Is(err, ErrTimeout) {
		t.Fatalf("got %v", err)
	}
}
