package redistest

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// bubble runs f in a bubble with a server.
func bubble(t *testing.T, f func(*testing.T, *BubbleServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, Bubble(t)) })
}

func TestKeysExpireByTheBubblesClock(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		c := b.Client(t)
		must(t, c.Set(t.Context(), "k", "v", time.Hour).Err())
		time.Sleep(time.Hour - time.Millisecond)
		equal(t, "left", c.PTTL(t.Context(), "k").Val(), time.Millisecond)
		time.Sleep(time.Millisecond)
		if err := c.Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
			t.Fatalf("got %v", err)
		}
	})
}

func TestAScriptReadsTheBubblesTime(t *testing.T) {
	now := redis.NewScript(`local t = redis.call('TIME') return t[1] * 1000000 + t[2]`)
	bubble(t, func(t *testing.T, b *BubbleServer) {
		c := b.Client(t)
		for range 3 {
			got, err := now.Run(t.Context(), c, nil).Int64()
			must(t, err)
			equal(t, "microseconds", got, time.Now().UnixMicro())
			clock, err := c.Time(t.Context()).Result()
			must(t, err)
			equal(t, "TIME", clock.UnixMicro(), time.Now().UnixMicro())
			time.Sleep(17*time.Minute + 3*time.Microsecond)
		}
	})
}

func TestMessagesArriveInABubble(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		sub := b.Link().Client(t).Subscribe(t.Context(), "news")
		defer sub.Close()
		_, err := sub.Receive(t.Context())
		must(t, err)
		must(t, b.Client(t).Publish(t.Context(), "news", "hello").Err())
		equal(t, "message", (<-sub.Channel()).Payload, "hello")
	})
}

// A bubble ends only when all its goroutines have ended.
func TestBlockedReadsEndWithTheBubble(t *testing.T) {
	ended := 0
	bubble(t, func(t *testing.T, b *BubbleServer) {
		c, ctx := b.Client(t), context.WithoutCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			_ = c.XRead(ctx, &redis.XReadArgs{Streams: []string{"s", "0"}, Block: time.Hour}).Err()
		})
		wg.Go(func() { _ = c.BLPop(ctx, time.Hour, "l").Err() })
		sub := c.Subscribe(ctx, "news")
		wg.Go(func() { _, _ = sub.ReceiveMessage(ctx) })
		go func() { wg.Wait(); ended++ }()
		synctest.Wait()
		equal(t, "ended", ended, 0)
	})
	equal(t, "ended", ended, 1)
}

func TestABlockedReadIsWokenAndTimesOutByTheBubblesClock(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		c := b.Client(t)
		read := func() error {
			return c.XRead(t.Context(), &redis.XReadArgs{Streams: []string{"s", "0-0"}, Block: time.Second}).Err()
		}
		start := time.Now()
		if err := read(); !errors.Is(err, redis.Nil) {
			t.Fatalf("got %v", err)
		}
		equal(t, "blocked for", time.Since(start), time.Second)
		time.AfterFunc(300*time.Millisecond, func() {
			c.XAdd(t.Context(), &redis.XAddArgs{Stream: "s", Values: []string{"a", "b"}})
		})
		start = time.Now()
		must(t, read())
		equal(t, "blocked for", time.Since(start), 300*time.Millisecond)
	})
}

// Over a bare net.Pipe client and server would wait for each other here.
func TestABigPipelineDoesNotGetStuck(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		value := strings.Repeat("x", 10<<10)
		cmds, err := b.Client(t).Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := range 200 {
				p.Set(t.Context(), strconv.Itoa(i), value, time.Minute)
				p.Get(t.Context(), strconv.Itoa(i))
			}
			return nil
		})
		must(t, err)
		equal(t, "last", cmds[399].(*redis.StringCmd).Val(), value)
	})
}

func TestAFrozenLinkHoldsCommandsBackAndLeavesOtherNodesAlone(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		far, near := b.Link(), b.Client(t)
		c := far.Client(t, func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, time.Second })
		must(t, c.Ping(t.Context()).Err())
		far.Freeze()
		start := time.Now()
		if err := c.Set(t.Context(), "k", "late", 0).Err(); !timedOut(err) {
			t.Fatalf("got %v", err)
		}
		equal(t, "waited", time.Since(start), time.Second)
		must(t, near.Set(t.Context(), "k", "early", 0).Err())
		far.Thaw()
		synctest.Wait()
		equal(t, "value", near.Get(t.Context(), "k").Val(), "late")
		must(t, c.Ping(t.Context()).Err())
	})
}

func TestASubscriptionOnAFrozenLinkGetsItsMessagesLate(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		l := b.Link()
		sub := l.Client(t).Subscribe(t.Context(), "news")
		defer sub.Close()
		_, err := sub.Receive(t.Context())
		must(t, err)
		l.Freeze()
		must(t, b.Client(t).Publish(t.Context(), "news", "hello").Err())
		time.AfterFunc(time.Second, l.Thaw)
		start := time.Now()
		equal(t, "message", (<-sub.Channel()).Payload, "hello")
		equal(t, "late by", time.Since(start), time.Second)
	})
}

func TestACutLinkLosesWhatWasUnderWayAndConnectsAgain(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		l := b.Link()
		c := l.Client(t, func(o *redis.Options) { o.MaxRetries = -1 })
		must(t, c.Ping(t.Context()).Err())
		l.Freeze()
		time.AfterFunc(time.Second, func() { l.Cut(); l.Thaw() })
		if c.Set(t.Context(), "k", "v", 0).Err() == nil {
			t.Fatal("the command survived the cut")
		}
		synctest.Wait()
		must(t, c.Ping(t.Context()).Err())
		equal(t, "exists", c.Exists(t.Context(), "k").Val(), 0)
	})
}

func TestARefusedLinkFailsAtOnceUntilItIsAcceptedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		l := b.Link()
		c := l.Client(t, func(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 })
		must(t, c.Ping(t.Context()).Err())
		l.Refuse(true)
		start := time.Now()
		if c.Ping(t.Context()).Err() == nil {
			t.Fatal("a refused link answered")
		}
		equal(t, "waited", time.Since(start), 0)
		l.Refuse(false)
		must(t, c.Ping(t.Context()).Err())
	})
}

func TestARestartedBubbleServerIsEmptyAndKnowsNoScript(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		c := b.Client(t)
		s := redis.NewScript(`return 1`)
		must(t, s.Load(t.Context(), c).Err())
		must(t, c.Set(t.Context(), "k", "v", 0).Err())
		b.Restart(t)
		equal(t, "exists", c.Exists(t.Context(), "k").Val(), 0)
		if err := s.EvalSha(t.Context(), c, nil).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
			t.Fatalf("got %v", err)
		}
	})
}

func TestADirectLookIntoTheServer(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		must(t, b.Client(t).Set(t.Context(), "k", "v", 0).Err())
		got, err := b.Mini().Get("k")
		must(t, err)
		equal(t, "value", got, "v")
	})
}

func TestAFrozenServerStaysSilentForEverybody(t *testing.T) {
	bubble(t, func(t *testing.T, b *BubbleServer) {
		quick := func(o *redis.Options) { o.MaxRetries, o.ReadTimeout, o.DialerRetries = -1, time.Second, 1 }
		old, young := b.Client(t, quick), b.Link().Client(t, quick)
		must(t, old.Ping(t.Context()).Err())
		b.Freeze()
		for _, c := range []*redis.Client{old, young} {
			if c.Ping(t.Context()).Err() == nil {
				t.Fatal("a frozen server answered")
			}
		}
		b.Thaw()
		for _, c := range []*redis.Client{old, young} {
			must(t, c.Ping(t.Context()).Err())
		}
	})
}
