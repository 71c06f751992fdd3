package link

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// get is a read through the link.
func get(ctx context.Context, l *Link, b *Budget, class Class) (string, error) {
	return Call(ctx, l, b, class, func(ctx context.Context) (string, error) {
		return l.Client.Get(ctx, "k").Result()
	})
}

// within is a fresh budget.
func within(d time.Duration) *Budget { return &Budget{Left: d} }

func TestACallBringsTheAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		must(t, l.Client.Set(t.Context(), "k", "v", 0).Err())
		got, err := get(t.Context(), l, within(time.Second), Spared)
		must(t, err)
		equal(t, "value", got, "v")
	})
}

func TestACallEndsAtItsBudgetWhateverTheClientsTimeouts(t *testing.T) {
	const budget = 100 * time.Millisecond
	for _, tc := range []struct {
		situation string
		edit      func(*redis.Options)
		ends      time.Duration
		stuck     int64
	}{
		{"as they come", func(*redis.Options) {}, budget, 1},
		{"none", func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = -1, -1 }, budget, 1},
		{"obeyed contexts", func(o *redis.Options) { o.ContextTimeoutEnabled = true }, budget, 0},
		{"shorter ones", func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = 20*time.Millisecond, -1 }, 20 * time.Millisecond, 0},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				l := open(t, b.Client(t, tc.edit))
				warm(t, l.Client)
				b.Freeze()
				began := time.Now()
				_, err := get(t.Context(), l, within(budget), Spared)
				took(t, began, tc.ends)
				isErr(t, err, ErrUnavailable)
				synctest.Wait()
				equal(t, "stuck calls", l.stuck.Load(), tc.stuck)
				b.Thaw()
				time.Sleep(time.Minute)
				equal(t, "stuck calls after the client's timeouts", l.stuck.Load(), 0)
			})
		})
	}
}

func TestACallToAServerThatCannotBeDialledEndsAtItsBudget(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t, func(o *redis.Options) {
			o.Dialer = func(context.Context, string, string) (net.Conn, error) {
				time.Sleep(3 * time.Second)
				return nil, net.ErrClosed
			}
		}))
		began := time.Now()
		_, err := get(t.Context(), l, within(100*time.Millisecond), Urgent)
		took(t, began, 100*time.Millisecond)
		isErr(t, err, ErrUnavailable)
		time.Sleep(2 * time.Minute)
		equal(t, "stuck calls in the end", l.stuck.Load(), 0)
	})
}

func TestStuckCallsAreBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		back := make(chan struct{})
		stick := func() error {
			_, err := Call(t.Context(), l, within(time.Millisecond), Urgent, func(context.Context) (int, error) {
				<-back
				return 0, nil
			})
			return err
		}
		for range maxStuck {
			saying(t, stick(), "budget is spent")
		}
		equal(t, "stuck calls", l.stuck.Load(), maxStuck)

		began := time.Now()
		err := stick()
		isErr(t, err, ErrUnavailable)
		saying(t, err, "too many calls are stuck")
		took(t, began, 0)
		equal(t, "stuck calls", l.stuck.Load(), maxStuck)

		close(back)
		synctest.Wait()
		equal(t, "stuck calls that have come back", l.stuck.Load(), 0)
		must(t, stick())
	})
}

func TestACallAndItsDeadlineMayMeet(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		for range 300 {
			n, err := Call(t.Context(), l, within(time.Millisecond), Urgent, func(context.Context) (int, error) {
				time.Sleep(time.Millisecond)
				return 7, nil
			})
			if err == nil && n != 7 || err != nil && !errors.Is(err, ErrUnavailable) {
				t.Fatalf("got %d, %v", n, err)
			}
			synctest.Wait()
		}
		equal(t, "stuck calls", l.stuck.Load(), 0)
	})
}

func TestTheCallersContextEndsTheWait(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		warm(t, l.Client)
		b.Freeze()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*time.Millisecond, cancel)
		began := time.Now()
		_, err := get(ctx, l, within(time.Second), Spared)
		took(t, began, 30*time.Millisecond)
		isErr(t, err, context.Canceled)

		ctx, cancel = context.WithTimeout(t.Context(), 40*time.Millisecond)
		defer cancel()
		began = time.Now()
		_, err = get(ctx, l, within(time.Second), Spared)
		took(t, began, 40*time.Millisecond)
		isErr(t, err, context.DeadlineExceeded)
		b.Thaw()
	})
}

func TestWhatIsCalledIsToldOfTheBudget(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		type name struct{}
		ctx := context.WithValue(t.Context(), name{}, "alice")
		_, err := Call(ctx, l, within(50*time.Millisecond), Spared, func(ctx context.Context) (int, error) {
			deadline, ok := ctx.Deadline()
			equal(t, "deadline set", ok, true)
			equal(t, "deadline in", time.Until(deadline), 50*time.Millisecond)
			equal(t, "value", ctx.Value(name{}), any("alice"))
			<-ctx.Done()
			isErr(t, ctx.Err(), context.DeadlineExceeded)
			return 0, nil
		})
		if err != nil {
			isErr(t, err, ErrUnavailable)
		}
		synctest.Wait()
	})
}

func TestABudgetShrinksWithEachCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		client := b.Client(t)
		f := redistest.NewFaults(t)
		client.AddHook(f)
		l := open(t, client)
		warm(t, client)
		reads := f.Delay(redistest.Name("get"), 30*time.Millisecond)

		budget := within(100 * time.Millisecond)
		for _, left := range []time.Duration{70, 40, 10} {
			_, err := get(t.Context(), l, budget, Spared)
			isErr(t, err, redis.Nil)
			equal(t, "left", budget.Left, left*time.Millisecond)
		}
		began := time.Now()
		_, err := get(t.Context(), l, budget, Spared)
		isErr(t, err, ErrUnavailable)
		took(t, began, 10*time.Millisecond)

		sent := reads.Count()
		_, err = get(t.Context(), l, budget, Urgent)
		isErr(t, err, ErrUnavailable)
		saying(t, err, "budget is spent")
		synctest.Wait()
		equal(t, "calls made on a spent budget", reads.Count()-sent, 0)
	})
}

// panicky is a hook of a user's.
type panicky struct{}

func (panicky) DialHook(next redis.DialHook) redis.DialHook { return next }
func (panicky) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { panic("the user's mistake") }
}
func (panicky) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { panic("the user's mistake") }
}

func TestAPanicInAHookBecomesAnError(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		client := b.Client(t)
		client.AddHook(panicky{})
		l := open(t, client)
		_, err := get(t.Context(), l, within(time.Second), Spared)
		saying(t, err, "panic inside the redis client: the user's mistake")
		isErr(t, err, ErrUnavailable)
	})
}

func TestTheServersOwnErrorsPassAsTheyAre(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		must(t, l.Client.LPush(t.Context(), "list", "x").Err())
		for situation, f := range map[string]func(context.Context) (string, error){
			"nothing there": func(ctx context.Context) (string, error) { return l.Client.Get(ctx, "k").Result() },
			"wrong type":    func(ctx context.Context) (string, error) { return l.Client.Get(ctx, "list").Result() },
			"no such":       func(ctx context.Context) (string, error) { return l.Client.Do(ctx, "nosuch").Text() },
		} {
			_, own := f(t.Context())
			_, err := Call(t.Context(), l, within(time.Second), Spared, f)
			if own == nil || err == nil || err.Error() != own.Error() || errors.Is(err, ErrUnavailable) {
				t.Errorf("%s: got %v, want %v as it is", situation, err, own)
			}
		}
	})
}

func TestBrokenConnectionsAreUnavailability(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		wire := b.Link()
		l := open(t, wire.Client(t, func(o *redis.Options) { o.MaxRetries = -1 }))
		warm(t, l.Client)
		wire.Refuse(true)
		_, err := get(t.Context(), l, within(time.Minute), Spared)
		isErr(t, err, ErrUnavailable)
		wire.Refuse(false)
		_, err = get(t.Context(), l, within(time.Minute), Spared)
		isErr(t, err, redis.Nil)
	})
}
