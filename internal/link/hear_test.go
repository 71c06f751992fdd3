package link

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

func TestWhoHearsAChannelGetsItsMessagesInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		heard := make(chan News, 10)
		ears := l.Hub.Hear("ch", func(n News) { heard <- n })
		equal(t, "first", <-heard, News{Confirmed: true})
		b.Mini().Publish("ch", "one")
		b.Mini().Publish("other", "not this")
		b.Mini().Publish("ch", "two")
		equal(t, "second", <-heard, News{Message: "one"})
		equal(t, "third", <-heard, News{Message: "two"})
		b.Cut()
		equal(t, "after a reconnect", <-heard, News{Confirmed: true})
		ears.Close()
		synctest.Wait()
		b.Mini().Publish("ch", "three")
		synctest.Wait()
		equal(t, "after the end", len(heard), 0)
	})
}

func TestTheSpanOfAServersTimeHoldsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		c := NewClock()
		if _, _, ok := c.Span("m", 1); ok {
			t.Error("known before anything was observed")
		}
		sent := c.Now()
		time.Sleep(10 * time.Millisecond)
		c.Observe("m", sent, c.Now(), 1_000_005_000) // read somewhere within
		earliest, latest, ok := c.Span("m", 1_000_105_000)
		equal(t, "known", ok, true)
		if e, l := time.Duration(earliest-sent), time.Duration(latest-sent); e < 99*time.Millisecond || e > 100*time.Millisecond || l != 110*time.Millisecond {
			t.Errorf("from %v to %v", e, l)
		}
		time.Sleep(10 * time.Second) // clocks drift
		wider, later, _ := c.Span("m", 1_000_105_000)
		equal(t, "wider", wider < earliest && later > latest, true)
	})
}

func TestALeaseIsToldToBeLostEarlyAndNotRenewedForEver(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		client := b.Client(t)
		l := open(t, client)
		fixed := take(t, l, client, "fixed", leaseLength)
		fixed.Fixed, fixed.Early = true, 100*time.Millisecond
		bounded := take(t, l, client, "bounded", leaseLength)
		bounded.Until = l.Clock.Now().Add(time.Minute)
		began := time.Now()
		l.Leases.Add(&fixed.Renewal)
		l.Leases.Add(&bounded.Renewal)
		time.Sleep(2 * time.Minute)
		errs, at := fixed.lost()
		if len(errs) != 1 || errs[0] != ErrExpired || at.Sub(began) != leaseLength-leaseLength/driftLoss-100*time.Millisecond {
			t.Errorf("not renewed: %v after %v", errs, at.Sub(began))
		}
		errs, at = bounded.lost()
		if len(errs) != 1 || errs[0] != ErrHeldTooLong || at.Sub(began) != time.Minute {
			t.Errorf("bounded: %v after %v", errs, at.Sub(began))
		}
	})
}

func TestAMachineThatSleptKnowsItByTheWallClock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		client := b.Client(t)
		l := open(t, client)
		var slept atomic.Int64
		l.Clock.Wall = func() int64 { return time.Now().UnixNano() + slept.Load() }
		h := hold(t, l, client, "k", leaseLength)
		equal(t, "awake", l.Leases.Slept(&h.Renewal), false)
		slept.Store(int64(leaseLength)) // the wall clock has gone on alone
		equal(t, "slept", l.Leases.Slept(&h.Renewal), true)
		l.Leases.Hurry()
		synctest.Wait()
		equal(t, "renewed since", l.Leases.Slept(&h.Renewal), false)
		l.Leases.Remove(&h.Renewal)
	})
}
