package rebuild

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

func TestACopyIsJudgedByItsWindows(t *testing.T) {
	value := Stamp{Kind: KindValue, Fresh: 10, Stale: 20, IfError: 30}
	for i, want := range map[link.Instant]State{0: Fresh, 9: Fresh, 10: Stale, 19: Stale, 20: IfError, 29: IfError, 30: Gone} {
		equal(t, "value", value.At(i), want)
	}
	notFound := Stamp{Kind: KindNotFound, Fresh: 10, Stale: 20, IfError: 30}
	for i, want := range map[link.Instant]State{0: NotFound, 9: NotFound, 10: Gone, 19: Gone} {
		equal(t, "not found", notFound.At(i), want)
	}
}

func TestTheWindowsOfACopyAreCountedFromTheSendingOfItsRead(t *testing.T) {
	n := &Node{policy: testPolicy()}
	n.policy.LocalTTL = 3 * time.Second
	const sent = link.Instant(100 * time.Second)
	now := at.micros()
	h := Header{Kind: KindValue, Identity: Identity{now - 2_000_000, token("W")}, Fresh: at + 5000, Stale: at + 6000, IfError: at + 7000}
	s := n.stampOf(h, now, sent)
	equal(t, "identity", s.Identity, h.Identity)
	equal(t, "loaded", s.Loaded, sent.Add(-2*time.Second))
	equal(t, "fresh", s.Fresh, sent.Add(5*time.Second))
	equal(t, "stale", s.Stale, sent.Add(6*time.Second))
	equal(t, "if error", s.IfError, sent.Add(7*time.Second))
	equal(t, "believed", s.Believed, sent.Add(3*time.Second))
	equal(t, "due", s.Due, sent.Add(2400*time.Millisecond))
}

func TestACopyIsNotBelievedLongerThanRedisKeepsIt(t *testing.T) {
	n := &Node{policy: testPolicy()}
	n.policy.LocalTTL = time.Minute
	now := at.micros()
	s := n.stampOf(Header{Kind: KindNotFound, Fresh: at + 5000, Stale: at + 5000, IfError: at + 5000}, now, 0)
	equal(t, "not found", s.Believed, link.Instant(5*time.Second))
	s = n.stampOf(Header{Kind: KindValue, Fresh: at + 1000, Stale: at + 2000, IfError: at + 3000}, now, 0)
	equal(t, "value", s.Believed, link.Instant(3*time.Second))
	equal(t, "its refresh", s.Due, link.Instant(time.Second))
}

func TestACopyFromAheadOfTheClockIsStaleOnTheNodeToo(t *testing.T) {
	n := &Node{policy: testPolicy()}
	now := at.micros()
	h := Header{Kind: KindValue, Identity: Identity{Version: now + aheadOf + 1}, Fresh: at + 5000, Stale: at + 6000, IfError: at + 7000}
	s := n.stampOf(h, now, 100)
	equal(t, "state", s.At(100), Stale)
	equal(t, "loaded", s.Loaded, 100)
	h.Version--
	s = n.stampOf(h, now, 100)
	equal(t, "state of one a little ahead", s.At(100), Fresh)
}

func TestOneOfManyHitsClaimsTheRefresh(t *testing.T) {
	var m Meta
	var claims atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if m.claim(5) {
					claims.Add(1)
				}
			}
		})
	}
	wg.Wait()
	equal(t, "claims", claims.Load(), 1)
	equal(t, "rests", m.Rests(5), true)
	m.restFor(5, 10)
	equal(t, "claim while it rests", m.claim(14), false)
	equal(t, "rests", m.Rests(15), false)
	equal(t, "claim after that", m.claim(15), true)
}

func TestACopyWhoseLeaseIsHeldRestsLongerEachTime(t *testing.T) {
	var m Meta
	for _, want := range []time.Duration{50, 100, 200, 400, 500, 500} {
		m.restHeld(0)
		equal(t, "last instant of rest", m.Rests(link.Instant(want*time.Millisecond)-1), true)
		equal(t, "the end of it", m.Rests(link.Instant(want*time.Millisecond)), false)
	}
	for range 100 {
		m.restHeld(0)
	}
	equal(t, "in the end", m.Rests(link.Instant(lastPause)), false)
}
