package cache_test

import (
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// Its message is missing still: that is no reason to remove what others have loaded since.
func TestARetryDeletesOnce(t *testing.T) {
	inBubble(t, 1, hours(), func(t *testing.T, f *fleet) {
		n := f.nodes[0]
		f.query = takes(time.Millisecond)
		time.Sleep(time.Second)
		gets(t, n, "k", value("k", 1))
		n.faults.Fail(isMessage, redistest.ReplyError("NOPERM no right"))
		failing := n.faults.Fail(isDelete, nil).Times(1)
		unconfirmed(t, n.Delete(t.Context(), "k"))
		failing.Clear()
		time.Sleep(2 * time.Second)
		for range 60 {
			gets(t, n, "k", value("k", 1))
			time.Sleep(time.Second)
		}
		equal(t, "loads", f.queries("k"), 2)
		equal(t, "the message waits", n.Stats().DeletesWaiting, 1)
		n.faults.Clear()
	})
}

// D1 has its script done and tells still when D2, of a later write, fails.
func TestAnOlderDeleteLeavesTheRetryOfANewerOne(t *testing.T) {
	inBubble(t, 2, hours(), func(t *testing.T, f *fleet) {
		a := f.nodes[0]
		f.query = takes(time.Millisecond)
		time.Sleep(time.Second)
		gets(t, a, "k", value("k", 1))
		f.write("k")
		hold := a.faults.Hold(isMessage).Times(1)
		first := make(chan error, 1)
		go func() { first <- a.Delete(t.Context(), "k") }()
		must(t, hold.Wait(t.Context()))
		gets(t, f.nodes[1], "k", value("k", 2))
		f.write("k")
		failing := a.faults.Fail(isDelete, nil).Times(1)
		unconfirmed(t, a.Delete(t.Context(), "k"))
		failing.Clear()
		hold.Release(t.Context())
		must(t, <-first)
		equal(t, "waiting after the older one has ended", a.Stats().DeletesWaiting, 1)
		time.Sleep(5 * time.Second)
		equal(t, "waiting in the end", a.Stats().DeletesWaiting, 0)
		gets(t, f.nodes[1], "k", value("k", 3))
		gets(t, a, "k", value("k", 3))
	})
}

func TestAClearThatHasSucceededIsNotRepeated(t *testing.T) {
	for _, m := range mass {
		t.Run(m.name, func(t *testing.T) {
			inFaultyBubble(t, 1, hours(), func(t *testing.T, f *fleet) {
				n := f.nodes[0]
				failing := n.faults.Fail(isEnd, nil).Times(1)
				unconfirmed(t, m.end(t.Context(), n))
				failing.Clear()
				must(t, m.end(t.Context(), n))
				equal(t, "waiting", n.Stats().DeletesWaiting, 0)
				time.Sleep(time.Millisecond)
				gets(t, n, "red-0", value("red-0", 1))
				time.Sleep(5 * time.Second)
				gets(t, n, "red-0", value("red-0", 1))
				equal(t, "loads", f.queries("red-0"), 1)
			})
		})
	}
}

// The retry of the first has its script done and tells still when the second, of a later write, fails.
func TestAClearThatFailsBesideTheRetryOfAnotherIsRetried(t *testing.T) {
	for _, m := range mass {
		t.Run(m.name, func(t *testing.T) {
			inFaultyBubble(t, 1, hours(), func(t *testing.T, f *fleet) {
				n := f.nodes[0]
				failing := n.faults.Fail(isEnd, nil).Times(1)
				unconfirmed(t, m.end(t.Context(), n))
				failing.Clear()
				hold := n.faults.Hold(isMessage).Times(1)
				must(t, hold.Wait(t.Context()))
				time.Sleep(time.Millisecond)
				gets(t, n, "red-0", value("red-0", 1))
				f.write("red-0")
				failing = n.faults.Fail(isEnd, nil).Times(1)
				unconfirmed(t, m.end(t.Context(), n))
				failing.Clear()
				hold.Release(t.Context())
				time.Sleep(10 * time.Second)
				s := n.Stats()
				equal(t, "waiting", s.DeletesWaiting, 0)
				equal(t, "lost", s.DeletesLost, 0)
				_, err := n.Get(t.Context(), "red-0") // served stale by the last, it is refreshed
				must(t, err)
				time.Sleep(10 * time.Millisecond)
				gets(t, n, "red-0", value("red-0", 2))
			})
		})
	}
}

func TestADeleteThatFailsWhileTheCacheClosesIsLost(t *testing.T) {
	inFaultyBubble(t, 1, hours(), func(t *testing.T, f *fleet) {
		n := f.nodes[0]
		hang := n.faults.Hang(isDelete, 50*time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- n.Delete(t.Context(), "k") }()
		must(t, hang.Wait(t.Context()))
		must(t, n.Close())
		unconfirmed(t, <-done)
		time.Sleep(time.Second)
		s := n.Stats()
		equal(t, "waiting", s.DeletesWaiting, 0)
		equal(t, "lost", s.DeletesLost, 1)
		f.checked.Do(func() {})
	})
}
