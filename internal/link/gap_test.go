package link

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// distrusted fails unless a gap was noticed since that instant and the ear hears again.
func distrusted(t *testing.T, e *ear, since Instant) {
	t.Helper()
	synctest.Wait()
	equal(t, "trusts what was asked for before", e.trusts(since), false)
	equal(t, "trusts what is asked for now", e.trusts(e.now()), true)
	equal(t, "gaps", e.stream.Counts().Gaps, 1)
}

// trusted fails if a gap was noticed.
func trusted(t *testing.T, e *ear, since Instant) {
	t.Helper()
	synctest.Wait()
	equal(t, "trusts what was asked for before", e.trusts(since), true)
	equal(t, "gaps", e.stream.Counts().Gaps, 0)
}

func TestWhatWasAskedForBeforeTheStartIsNotTrusted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		time.Sleep(time.Second)
		since := l.Clock.Now()
		b.Freeze()
		e := follow(t, stream(t, l), "users", "ear")
		time.Sleep(time.Second)
		equal(t, "trusts before an answer", e.trusts(e.now()), false)
		b.Thaw()
		time.Sleep(2 * time.Second)
		equal(t, "trusts what was asked for before", e.trusts(since), false)
		equal(t, "trusts what is asked for now", e.trusts(e.now()), true)
		equal(t, "gaps", e.stream.Counts().Gaps, 0)
	})
}

func TestASilentStreamIsTrusted(t *testing.T) {
	for _, situation := range []string{"with a message", "without the key"} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				s, e := flowing(t, b, b.Client(t))
				if situation == "without the key" {
					must(t, b.Client(t).Del(t.Context(), streamKey).Err())
					time.Sleep(time.Second)
				}
				since, floor := e.asked(), e.stream.Floor()
				for range 1000 {
					time.Sleep(17 * time.Millisecond)
					if !e.trusts(since) {
						t.Fatalf("not trusted after %v", time.Duration(e.now()-since))
					}
				}
				equal(t, "floor", e.stream.Floor(), floor)
				sends(t, s, kept, "heard")
				heard(t, e, "heard")
			})
		})
	}
}

func TestAMessageThatWasTrimmedIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		wire := b.Link()
		s, e := flowing(t, b, wire.Client(t))
		since := e.asked()
		wire.Refuse(true)
		sends(t, s, Publication{Sender: "tester", Length: 5, Life: time.Hour}, numbers(20)...)
		wire.Refuse(false)
		time.Sleep(2 * time.Second)
		distrusted(t, e, since)
		heard(t, e, "15 16 17 18 19") // what is left is true all the same
	})
}

func TestADeletedStreamIsNoticedWithinOneBlock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		s, e := flowing(t, b, b.Client(t))
		since := e.asked()
		must(t, b.Client(t).Del(t.Context(), streamKey).Err())
		time.Sleep(blockTime)
		distrusted(t, e, since)
		since = e.asked()
		time.Sleep(5 * time.Second)
		equal(t, "trusts what was asked for since", e.trusts(since), true) // the loss is noticed once
		sends(t, s, kept, "next")
		heard(t, e, "next")
	})
}

func TestAMessageInAFlushedStreamIsAGap(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		s, e := flowing(t, b, b.Client(t))
		since := e.asked()
		b.Mini().FlushAll()
		sends(t, s, kept, "next")
		distrusted(t, e, since)
		heard(t, e, "next")
	})
}

// The id of the second first message is that of the first one, since no time has passed.
func TestAStreamThatIsLostAndBegunAnewInAMillisecondIsNoticed(t *testing.T) {
	for _, situation := range []string{"silent after it", "with another message"} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				s, e := flowing(t, b, b.Client(t))
				since := e.asked()
				sends(t, s, kept, "seen")
				heard(t, e, "seen")
				b.Mini().FlushAll()
				sends(t, s, kept, "lost")
				if situation == "with another message" {
					sends(t, s, kept, "next")
				}
				time.Sleep(blockTime)
				distrusted(t, e, since)
			})
		})
	}
}

// There may have been another one, which was lost between two reads.
func TestTheFirstMessageOfAStreamIsAGap(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		e := ears(t, b.Client(t))
		synctest.Wait()
		since := e.asked()
		sends(t, senders(t, b.Client(t)), kept, "seen")
		distrusted(t, e, since)
		heard(t, e, "seen")
	})
}

// While the reader is away a stream without messages gets one, and is flushed, and gets another:
// nothing but the second can be seen, and it looks like the first.
func TestAStreamThatCameAndWentWhileTheReaderWasAwayIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		wire := b.Link()
		e := ears(t, wire.Client(t))
		synctest.Wait()
		since := e.asked()
		s := senders(t, b.Client(t))
		wire.Refuse(true)
		wire.Cut()
		time.Sleep(time.Second)
		sends(t, s, kept, "lost")
		b.Mini().FlushAll()
		sends(t, s, kept, "not read")
		wire.Refuse(false)
		time.Sleep(2 * time.Second)
		equal(t, "trusts what was asked for before", e.trusts(since), false)
		sends(t, s, kept, "next")
		heard(t, e, "next")
	})
}

func TestAClockThatStepsBackUnderALostStreamIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		_, e := flowing(t, b, b.Client(t))
		since := e.asked()
		c := b.Client(t)
		must(t, c.Del(t.Context(), streamKey).Err())
		add(t, c, "5-1", "s", "x", "t", "users", "k", "d", "x", "lost", "n", "0", "u", "1", "p", "0-0/")
		time.Sleep(blockTime)
		distrusted(t, e, since)
		add(t, c, "5-2", "s", "x", "t", "users", "k", "d", "x", "next", "n", "0", "u", "2", "p", "5-1/1")
		heard(t, e, "next")
		equal(t, "gaps", e.stream.Counts().Gaps, 1)
	})
}

// A failover lost the last messages: the new master goes on from an earlier one.
func TestAFailoverThatLostMessagesIsNoticed(t *testing.T) {
	for _, situation := range []string{"silent after it", "with a new message"} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				s, e := flowing(t, b, b.Client(t))
				c := b.Client(t)
				sends(t, s, kept, "kept", "lost")
				heard(t, e, "kept lost")
				since := e.asked()
				last, err := c.XRevRangeN(t.Context(), streamKey, "+", "-", 1).Result()
				must(t, err)
				must(t, c.XDel(t.Context(), streamKey, last[0].ID).Err())
				if situation == "with a new message" {
					sends(t, s, kept, "new")
					heard(t, e, "kept lost new")
				}
				time.Sleep(blockTime)
				distrusted(t, e, since)
			})
		})
	}
}

func TestAnExpiredStreamIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		s := senders(t, b.Client(t))
		sends(t, s, Publication{Sender: "tester", Length: 100, Life: 3 * time.Minute}, "long")
		e := ears(t, b.Client(t))
		synctest.Wait()
		since := e.asked()
		sends(t, s, Publication{Sender: "tester", Length: 100, Life: time.Minute}, "short")
		time.Sleep(170 * time.Second)
		trusted(t, e, since) // the longest lifetime counts
		time.Sleep(11 * time.Second)
		distrusted(t, e, since)
		equal(t, "keys left", len(b.Mini().Keys()), 0)
		sends(t, s, kept, "next")
		heard(t, e, "short next")
	})
}

// Receive is where copies are dropped: whoever reads the Trust before that must not be told that
// the message has been delivered, nor that what lay in the gap before it is still to be believed.
func TestTrustMovesOnAfterTheDeliveryAndFallsBeforeIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		s, e := flowing(t, b, b.Client(t))
		since := e.asked()
		var trusts []bool
		var extended []bool
		proven := e.stream.until.Load()
		defer e.stream.Follow(Follower{Topic: "users", Receive: func(Message) {
			trusts = append(trusts, e.trusts(since))
			extended = append(extended, e.stream.until.Load() > proven)
		}})()
		sends(t, s, kept, "without a gap")
		synctest.Wait()
		proven = e.stream.until.Load()
		b.Mini().FlushAll()
		time.Sleep(time.Millisecond)
		sends(t, s, kept, "behind a gap")
		synctest.Wait()
		equal(t, "deliveries", len(trusts), 2)
		equal(t, "trusted without a gap", trusts[0], true)
		equal(t, "trusted behind a gap", trusts[1], false)
		equal(t, "extended before a delivery", extended[0] || extended[1], false)
		equal(t, "extended after it", e.stream.until.Load() > proven, true)
	})
}

func TestAfterACutNothingIsMissedAndEverythingStaysTrusted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		wire := b.Link()
		s, e := flowing(t, b, wire.Client(t))
		since := e.asked()
		for _, text := range numbers(20) {
			wire.Cut()
			sends(t, s, kept, text)
			time.Sleep(200 * time.Millisecond)
			trusted(t, e, since)
		}
		heard(t, e, strings.Join(numbers(20), " "))
		equal(t, "log", e.log.lines(""), 0)
	})
}

func TestAfterALongCutNothingIsMissedEither(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		wire := b.Link()
		s, e := flowing(t, b, wire.Client(t))
		since := e.asked()
		wire.Refuse(true)
		sendAll(t, s, kept, numbers(2500)...) // more than one read brings
		time.Sleep(trustTime)
		equal(t, "hears", e.hears(), false)
		equal(t, "trusts", e.trusts(since), false)
		time.Sleep(time.Minute)
		equal(t, "warnings", e.log.lines("level=WARN"), 1)
		wire.Refuse(false)
		time.Sleep(pauseMost)
		trusted(t, e, since)
		heard(t, e, strings.Join(numbers(2500), " "))
		equal(t, "log", e.log.lines(""), 2)
		equal(t, "all clear", e.log.lines("received again"), 1)
	})
}

func TestAFrozenConnectionIsNoticedAndHeals(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		wire := b.Link()
		s, e := flowing(t, b, wire.Client(t))
		for i, offset := range []time.Duration{0, 130 * time.Millisecond, 490 * time.Millisecond} {
			since := e.asked()
			time.Sleep(offset)
			equal(t, "hears before", e.hears(), true)
			wire.Freeze()
			sends(t, s, kept, "x")
			time.Sleep(trustTime)
			equal(t, "hears after 0.8 s", e.hears(), false)
			time.Sleep(10 * time.Second)
			equal(t, "warnings", e.log.lines("level=WARN"), i+1)
			wire.Thaw()
			time.Sleep(openPatience + pauseMost)
			trusted(t, e, since)
			equal(t, "all clear", e.log.lines("received again"), i+1)
		}
		heard(t, e, "x x x")
	})
}

func TestARestartedServerIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		_, e := flowing(t, b, b.Client(t))
		since := e.asked()
		b.Restart(t)
		time.Sleep(time.Second)
		distrusted(t, e, since)
		s := senders(t, b.Client(t)) // whose pool has no broken connection
		sends(t, s, kept, "next")
		heard(t, e, "next")
	})
}

func TestAMalformedMessageIsAGap(t *testing.T) {
	for situation, fields := range map[string][]any{
		"foreign":          {"hello", "world"},
		"no predecessor":   {"s", "x", "t", "users", "k", "d", "x", "bad", "n", "0"},
		"no kind":          {"s", "x", "t", "users", "k", "", "x", "bad", "n", "0", "u", "1", "p", "0-0/"},
		"kind of two":      {"s", "x", "t", "users", "k", "dd", "x", "bad", "n", "0", "u", "1", "p", "0-0/"},
		"no number":        {"s", "x", "t", "users", "k", "d", "x", "bad", "n", "many", "u", "1", "p", "0-0/"},
		"number too large": {"s", "x", "t", "users", "k", "d", "x", "bad", "n", "9223372036854775808", "u", "1", "p", "0-0/"},
		"no topic":         {"s", "x", "k", "d", "x", "bad", "n", "0", "u", "1", "p", "0-0/"},
		"no text":          {"s", "x", "t", "users", "k", "d", "n", "0", "u", "1", "p", "0-0/"},
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				s, e := flowing(t, b, b.Client(t))
				since := e.asked()
				add(t, b.Client(t), "*", fields...)
				distrusted(t, e, since)
				sends(t, s, kept, "next")
				heard(t, e, "next")
				equal(t, "gaps", e.stream.Counts().Gaps, 1)
			})
		})
	}
}

func TestAForeignMessageThatLooksLikeOursButSkipsOneIsAGap(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		_, e := flowing(t, b, b.Client(t))
		since := e.asked()
		add(t, b.Client(t), "*", "s", "x", "t", "users", "k", "d", "x", "told", "n", "0", "u", "1", "p", "1-1/1")
		distrusted(t, e, since)
		heard(t, e, "told")
	})
}

// A full read may have left some behind that are as old as those it brought.
func TestAFullReadProvesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		e := ears(t, b.Client(t))
		synctest.Wait()
		r := newReader(e.stream)
		messages := make([]redis.XMessage, batch)
		e.stream.forget()
		r.take(t.Context(), messages, e.now())
		equal(t, "hears after a full read", e.hears(), false)
		r.take(t.Context(), messages[1:], e.now())
		equal(t, "hears after another", e.hears(), true)
	})
}

func TestAKeyOfAnotherTypeIsReportedOnceAndLeftAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		c := b.Client(t)
		must(t, c.LPush(t.Context(), streamKey, "mine").Err())
		e := ears(t, c)
		time.Sleep(time.Minute)
		equal(t, "errors", e.log.lines("level=ERROR"), 1)
		equal(t, "lines", e.log.lines(""), 1)
		equal(t, "hears", e.hears(), false)
		saying(t, e.stream.Send(t.Context(), &Budget{Left: time.Second}, kept, Message{}), "WRONGTYPE")
		equal(t, "lifetime of what stands there", c.PTTL(t.Context(), streamKey).Val(), -1)
		must(t, c.Del(t.Context(), streamKey).Err())
		time.Sleep(pauseLong)
		equal(t, "hears", e.hears(), true)
		equal(t, "all clear", e.log.lines("received again"), 1)
	})
}

func TestIdsAreComparedAsNumbers(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"0-0", "1-0", true},
		{"9-0", "10-0", true},
		{"10-0", "9-5", false},
		{"5-9", "5-10", true},
		{"5-10", "5-10", false},
		{"18446744073709551614-0", "18446744073709551615-18446744073709551615", true},
		{"", "0-1", true},
	} {
		equal(t, tc.a+" before "+tc.b, before(tc.a, tc.b), tc.want)
	}
}
