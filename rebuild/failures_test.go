package rebuild

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/levee-cache/levee/internal/link"
)

var errRoute = errors.New("no route")

// remembering runs f in a bubble with a memory of failures, which is closed after it.
func remembering(t *testing.T, f func(*testing.T, *failures), edit ...func(*Policy)) {
	synctest.Test(t, func(t *testing.T) {
		m := newFailures(link.NewClock(), edited(edit))
		defer m.close()
		f(t, m)
	})
}

// size is how many failures are remembered.
func (f *failures) size() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.new) + len(f.old)
}

func TestAFailureIsRememberedForItsBackoff(t *testing.T) {
	remembering(t, func(t *testing.T, m *failures) {
		pause := m.record("k", errRoute)
		between(t, "pause", pause, 400*time.Millisecond, 500*time.Millisecond)
		time.Sleep(pause - time.Nanosecond)
		e, ok := m.recall("k")
		if !ok || !errors.Is(e, errRoute) || e.Remote || e.Message != "no route" || e.RetryAfter != time.Nanosecond {
			t.Fatalf("got %#v, %v", e, ok)
		}
		if _, ok := m.recall("another"); ok {
			t.Fatal("the failure of another key is remembered")
		}
		time.Sleep(time.Nanosecond)
		if e, ok := m.recall("k"); ok {
			t.Fatalf("remembered for too long: %v", e)
		}
	})
}

func TestTheBackoffOfAKeyGrowsWithEachFailureInARow(t *testing.T) {
	remembering(t, func(t *testing.T, m *failures) {
		for _, longest := range []time.Duration{500, 1000, 2000, 4000, 5000, 5000, 5000} {
			pause := m.record("k", errRoute)
			between(t, "pause", pause, longest*time.Millisecond*4/5-1, longest*time.Millisecond)
			time.Sleep(pause)
		}
		between(t, "pause of another key", m.record("another", errRoute), 0, 500*time.Millisecond)
		m.clear("k")
		between(t, "pause after a success", m.record("k", errRoute), 0, 500*time.Millisecond)
	})
}

func TestAClearedFailureIsForgotten(t *testing.T) {
	remembering(t, func(t *testing.T, m *failures) {
		m.record("young", errRoute)
		m.record("old", errRoute)
		m.mu.Lock()
		m.old, m.new = map[string]failure{"old": m.new["old"]}, map[string]failure{"young": m.new["young"]}
		m.mu.Unlock()
		for _, key := range []string{"young", "old"} {
			m.clear(key)
			if _, ok := m.recall(key); ok {
				t.Errorf("%s is remembered", key)
			}
		}
	})
}

func TestFailuresAreForgottenByThemselvesAndTheTimerGoesToo(t *testing.T) {
	remembering(t, func(t *testing.T, m *failures) {
		for i := range 1000 {
			m.record(strconv.Itoa(i), errRoute)
		}
		time.Sleep(2*m.life + time.Second)
		equal(t, "remembered", m.size(), 0)
		m.mu.Lock()
		defer m.mu.Unlock()
		equal(t, "timer", m.turn == nil, true)
	})
}

func TestACountOutlivesTheLongestBackoff(t *testing.T) {
	remembering(t, func(t *testing.T, m *failures) {
		for range 10 {
			m.record("k", errRoute)
		}
		time.Sleep(10*m.policy.Backoff + time.Second)
		between(t, "pause", m.record("k", errRoute), 4*time.Second-1, 5*time.Second)
	})
}

func TestTheMemoryOfFailuresIsBounded(t *testing.T) {
	remembering(t, func(t *testing.T, m *failures) {
		full := map[string]failure{}
		for i := range maxFading {
			full[strconv.Itoa(i)] = failure{err: errRoute, until: m.clock.Now().Add(time.Hour)}
		}
		m.mu.Lock()
		m.old, m.new = maps.Clone(full), full
		m.mu.Unlock()
		m.record("one more", errRoute)
		equal(t, "remembered", m.size(), maxFading+1)
		for _, key := range []string{"one more", "0"} {
			if _, ok := m.recall(key); !ok {
				t.Errorf("%s is not remembered", key)
			}
		}
	}, func(p *Policy) { p.Backoff = time.Hour })
}

func TestWithoutABackoffNothingIsRemembered(t *testing.T) {
	remembering(t, func(t *testing.T, m *failures) {
		equal(t, "pause", m.record("k", errRoute), 0)
		if _, ok := m.recall("k"); ok || m.turn != nil {
			t.Fatal("something is remembered")
		}
	}, func(p *Policy) { p.Backoff = 0 })
}

func TestAClosedMemoryRemembersNothingMore(t *testing.T) {
	remembering(t, func(t *testing.T, m *failures) {
		m.record("k", errRoute)
		m.close()
		m.record("later", errRoute)
		for _, key := range []string{"k", "later"} {
			if _, ok := m.recall(key); ok {
				t.Errorf("%s is remembered", key)
			}
		}
		m.close()
	})
}

func TestFailuresMayBeRecordedByMany(t *testing.T) {
	m := newFailures(link.NewClock(), edited([]func(*Policy){func(p *Policy) { p.Backoff = time.Microsecond }}))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 2000 {
				key := strconv.Itoa((i + j) % 7)
				m.record(key, errRoute)
				m.recall(key)
				m.clear(key)
			}
		})
	}
	wg.Wait()
	m.close()
	equal(t, "remembered", m.size(), 0)
}

func TestTheTextOfAFailureIsCappedBetweenCharacters(t *testing.T) {
	p := testPolicy()
	for _, text := range []string{"", "no route", strings.Repeat("x", maxMessage), strings.Repeat("x", maxMessage+1),
		strings.Repeat("é", 200), "x" + strings.Repeat("é", 200), strings.Repeat("日", 200), strings.Repeat("\xff", 300), strings.Repeat("\x80", 300)} {
		got := p.message(errors.New(text))
		between(t, "length", len(got), min(len(text), maxMessage-3)*btoi(utf8.ValidString(text)), maxMessage)
		equal(t, "beginning", got, text[:len(got)])
		equal(t, "valid as before", utf8.ValidString(got), utf8.ValidString(text) || got == "")
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestARedactionThatPanicsTellsNothing(t *testing.T) {
	p := testPolicy()
	p.Redact = func(error) string { panic("no") }
	equal(t, "message", p.message(errRoute), "redacted")
	p.Redact = func(err error) string { return "hidden" }
	equal(t, "message", p.message(errRoute), "hidden")
}

func TestErrorsSayWhatTheyAreAndWhy(t *testing.T) {
	b := &BackoffError{RetryAfter: 1500 * time.Millisecond, Message: "no route", cause: errRoute}
	equal(t, "text", b.Error(), "levee: left alone for 1.5s after a failed load: no route")
	equal(t, "cause", errors.Is(fmt.Errorf("get: %w", b), errRoute), true)
	equal(t, "cause of a remote one", errors.Unwrap(&BackoffError{Remote: true}), nil)
	i := &InvalidationError{Key: "k\n", Bound: time.Minute, cause: errRoute}
	equal(t, "text", i.Error(), `levee: invalidation of key "k\n" is not confirmed, others may serve the old value for up to 1m0s: no route`)
	equal(t, "cause", errors.Is(i, errRoute), true)
}
