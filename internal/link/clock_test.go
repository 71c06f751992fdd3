package link

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const ms = Instant(time.Millisecond)

// serverAt is what a server shows at i whose clock is ahead of the node's by ahead.
func serverAt(i Instant, ahead time.Duration) int64 { return int64(i.Add(ahead)) / 1000 }

// knows fails unless c takes master's clock to be ahead by about d.
func knows(t *testing.T, c *Clock, master string, i Instant, d, within time.Duration) {
	t.Helper()
	got, ok := c.ServerMicros(master, i)
	off := time.Duration(got-serverAt(i, d)) * time.Microsecond
	if !ok || off.Abs() > within {
		t.Errorf("%q at %v: off by %v, known: %t; want within %v", master, time.Duration(i), off, ok, within)
	}
}

func TestAMastersClockIsUnknownUntilItHasAnswered(t *testing.T) {
	c := NewClock()
	if _, ok := c.ServerMicros("a", 5*ms); ok {
		t.Error("a clock was known from nothing")
	}
	c.Observe("a", 0, ms, serverAt(0, time.Hour))
	if _, ok := c.ServerMicros("b", 5*ms); ok {
		t.Error("another master's clock was taken")
	}
}

func TestTheOffsetIsWithinHalfARoundTrip(t *testing.T) {
	for range 2000 {
		ahead := time.Duration(rand.Int64N(int64(2*time.Hour))) - time.Hour
		there, back := Instant(rand.Int64N(int64(80*ms))), Instant(rand.Int64N(int64(80*ms)))
		sent := Instant(rand.Int64N(int64(time.Hour)))
		c := NewClock()
		c.Observe("", sent, sent+there+back, serverAt(sent+there, ahead))
		knows(t, c, "", sent+500*ms, ahead, time.Duration(there+back)/2+2*time.Microsecond)
	}
}

func TestTheTighterSampleWins(t *testing.T) {
	c := NewClock()
	c.Observe("", 0, 40*ms, serverAt(35*ms, time.Hour))
	knows(t, c, "", 50*ms, time.Hour, 21*time.Millisecond)
	c.Observe("", 50*ms, 51*ms, serverAt(50*ms, time.Hour))
	knows(t, c, "", 60*ms, time.Hour, time.Millisecond)
	c.Observe("", 100*ms, 150*ms, serverAt(100*ms, time.Hour)) // alone it would say 25 ms more
	knows(t, c, "", 200*ms, time.Hour, time.Millisecond)
}

func TestASampleThatContradictsMeansThatTheClockWasSet(t *testing.T) {
	for _, step := range []time.Duration{-5 * time.Second, -time.Second, time.Second, time.Hour} {
		c := NewClock()
		c.Observe("", 0, ms, serverAt(0, time.Minute))
		c.Observe("", 100*ms, 150*ms, serverAt(120*ms, time.Minute+step))
		knows(t, c, "", 200*ms, time.Minute+step, 26*time.Millisecond)
	}
}

func TestAnOldSampleGivesWayToALooserOneAndAYoungOneDoesNot(t *testing.T) {
	const trip = 5 * time.Second // an answer from the edge of it would say 2.5 s less than is true
	for age, off := range map[time.Duration]time.Duration{
		offsetLife - time.Second: 0,
		offsetLife + time.Second: -trip / 2,
	} {
		c := NewClock()
		c.Observe("", 0, ms, serverAt(0, time.Minute))
		received := ms.Add(age)
		sent := received.Add(-trip)
		c.Observe("", sent, received, serverAt(sent, time.Minute))
		knows(t, c, "", received, time.Minute+off, time.Millisecond)
	}
}

func TestASampleIsTrustedForItsLifeAndNoLonger(t *testing.T) {
	c := NewClock()
	c.Observe("", 0, ms, serverAt(0, time.Minute))
	knows(t, c, "", ms.Add(offsetLife), time.Minute, time.Millisecond)
	if _, ok := c.ServerMicros("", ms.Add(offsetLife)+1); ok {
		t.Error("a sample is trusted beyond its life")
	}
}

func TestClocksThatDriftApartAreFollowed(t *testing.T) {
	c := NewClock()
	drift := func(i Instant) time.Duration { return time.Duration(i / 200) } // half a per cent
	for i := Instant(0); i < Instant(10*time.Minute); i += Instant(100 * time.Millisecond) {
		back := Instant(rand.Int64N(int64(4 * ms)))
		c.Observe("", i, i+ms+back, serverAt(i+ms, drift(i+ms)))
		knows(t, c, "", i+5*ms, drift(i+5*ms), 200*time.Millisecond)
	}
}

func TestEachMasterHasItsOwnOffset(t *testing.T) {
	c := NewClock()
	c.Observe("a", 0, ms, serverAt(0, time.Hour))
	c.Observe("b", 0, ms, serverAt(0, -time.Hour))
	knows(t, c, "a", 9*ms, time.Hour, time.Millisecond)
	knows(t, c, "b", 9*ms, -time.Hour, time.Millisecond)
}

func TestAnAnswerThatIsReportedLateDoesNotHideANewerOne(t *testing.T) {
	c := NewClock()
	c.Observe("", 1000*ms, 1001*ms, serverAt(1000*ms, time.Hour))
	c.Observe("", 500*ms, 530*ms, serverAt(500*ms, time.Hour))
	knows(t, c, "", 1100*ms, time.Hour, time.Millisecond)
}

func TestTheClockIsMonotonicAndStartsAtZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		equal(t, "at birth", c.Now(), 0)
		time.Sleep(70 * time.Millisecond)
		equal(t, "later", c.Now(), 70*ms)
		equal(t, "left", c.Until(100*ms), 30*time.Millisecond)
		equal(t, "past", c.Until(50*ms), -20*time.Millisecond)
		equal(t, "sum", (70 * ms).Add(5*time.Millisecond), 75*ms)
	})
}

func TestAClockMayBeReadWhileItLearns(t *testing.T) {
	c := NewClock()
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := Instant(1); n < 500; n++ {
				if i%2 == 0 {
					c.Observe("a", n*ms, n*ms+ms, serverAt(n*ms, time.Hour))
				} else if micros, ok := c.ServerMicros("a", n*ms); ok && micros < serverAt(n*ms, 59*time.Minute) {
					t.Errorf("server time %d", micros)
				}
			}
		})
	}
	all.Wait()
}
