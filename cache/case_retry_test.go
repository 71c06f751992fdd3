package cache_test

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// logged is a log that counts lines.
type logged struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// lines counts those that contain all of parts.
func (l *logged) lines(parts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for line := range strings.Lines(l.text.String()) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue next
			}
		}
		n++
	}
	return n
}

// retried is a fleet in a bubble that retries deletes for d and says so in a log.
func retried(t *testing.T, nodes int, d time.Duration, body func(*testing.T, *fleet, *logged)) {
	log := &logged{}
	o := hours()
	o.RetryDeletes, o.Logger = d, slog.New(slog.NewTextHandler(log, nil))
	inBubbleWithEars(t, nodes, o, func(t *testing.T, f *fleet, _ ears) {
		f.query = takes(0)
		body(t, f, log)
	})
}

// unconfirmed checks that err is about an invalidation that Redis did not confirm.
func unconfirmed(t *testing.T, err error) {
	t.Helper()
	if _, ok := errors.AsType[*cache.InvalidationError](err); !ok {
		t.Errorf("got %v, want an InvalidationError", err)
	}
}

// away makes a node's commands time out; Redis executes none of them.
func (n *node) away() (back func()) {
	return n.faults.Fail(redistest.Any, nil).Clear
}

func TestADeleteThatWasNotConfirmedIsRetriedUntilItIs(t *testing.T) {
	retried(t, 3, 5*time.Second, func(t *testing.T, f *fleet, log *logged) {
		f.fans(t, "k", 3)
		back := f.nodes[0].away()
		f.write("k0")
		f.write("k1")
		unconfirmed(t, f.nodes[0].Delete(t.Context(), "k0"))
		unconfirmed(t, f.nodes[0].Expire(t.Context(), "k1"))
		unconfirmed(t, f.nodes[0].Set(t.Context(), "k2", "set"))
		time.Sleep(3 * time.Second)
		f.stores("k0", value("k0", 1))
		gets(t, f.nodes[1], "k0", value("k0", 1)) // as the error says
		equal(t, "told that something waits", log.lines("will be tried again") > 0, true)
		back()
		time.Sleep(time.Second)
		equal(t, "Redis holds", f.raw("k0")+f.raw("k2"), "")
		f.stores("k1", value("k1", 1))
		gets(t, f.nodes[1], "k0", value("k0", 2))
		gets(t, f.nodes[1], "k2", value("k2", 1)) // a Set is tried again as a Delete
		e, err := f.nodes[1].GetEntry(t.Context(), "k1")
		if err != nil || e.Value != value("k1", 1) || e.State != cache.StateStale {
			t.Errorf("got %+v, %v of what has expired", e, err)
		}
		time.Sleep(5 * time.Second)
		equal(t, "given up", log.lines("given up"), 0)
	})
}

// Clear and tags too.
func TestAClearThatWasNotConfirmedIsRetriedUntilItIs(t *testing.T) {
	for _, m := range mass {
		t.Run(m.name, func(t *testing.T) {
			inTaggedBubble(t, 3, hours(), func(t *testing.T, f *fleet, _ ears) {
				f.query = takes(time.Millisecond)
				red, blue := f.colours(t)
				for _, key := range append(red, blue...) {
					f.write(key)
				}
				n := f.nodes[0]
				n.faults = redistest.NewFaults(t)
				n.client.AddHook(n.faults)
				back := n.away()
				err := m.end(t.Context(), n)
				e, ok := errors.AsType[*cache.InvalidationError](err)
				if !ok || e.All != (m.name == "Clear") || (e.Tag == "") != e.All {
					t.Errorf("got %#v", err)
				}
				time.Sleep(2 * time.Second)
				gets(t, f.nodes[1], "red-1", value("red-1", 1)) // as the error says
				back()
				time.Sleep(time.Second)
				f.allEnded(t, red, blue, m)
			})
		})
	}
}

// The message alone is missing: it is sent once it can be.
func TestAMessageThatWasNotSentIsRetriedUntilItIs(t *testing.T) {
	retried(t, 2, 5*time.Second, func(t *testing.T, f *fleet, _ *logged) {
		f.fans(t, "k", 1)
		refused := f.nodes[0].faults.Fail(isMessage, nil)
		f.write("k0")
		untold(t, f.nodes[0].Delete(t.Context(), "k0"), f.options.LocalTTL)
		gets(t, f.nodes[0], "k0", value("k0", 2))
		time.Sleep(2 * time.Second)
		gets(t, f.nodes[1], "k0", value("k0", 1)) // as the error says
		refused.Clear()
		time.Sleep(time.Second)
		gets(t, f.nodes[1], "k0", value("k0", 2))
		f.stores("k0", value("k0", 2))
		equal(t, "loads", f.queries("k0"), 2) // what was loaded in between is not deleted again
	})
}

// A Set or Delete that came later is not undone by the retry of what was before it.
func TestTheNewestInvalidationOfAKeyWins(t *testing.T) {
	retried(t, 2, 20*time.Second, func(t *testing.T, f *fleet, _ *logged) {
		f.fans(t, "k", 3)
		n := f.nodes[0]
		back := n.away()
		for range 3 {
			unconfirmed(t, n.Delete(t.Context(), "k0"))
			unconfirmed(t, n.Expire(t.Context(), "k1"))
		}
		unconfirmed(t, n.Expire(t.Context(), "k0"))
		unconfirmed(t, n.Delete(t.Context(), "k1"))
		unconfirmed(t, n.Delete(t.Context(), "k2"))
		back()
		must(t, n.Set(t.Context(), "k2", "newer"))
		time.Sleep(5 * time.Second)
		f.stores("k0", value("k0", 1)) // expired, as was last asked for
		equal(t, "Redis holds of what was deleted last", f.raw("k1"), "")
		f.stores("k2", "newer")
		gets(t, f.nodes[1], "k2", "newer")
		equal(t, "loads of what was set", f.queries("k2"), 1)
	})
}

// The retry runs while a confirmed Set of the same key is under way: the value stays, or is loaded anew, but
// nothing older comes.
func TestARetryBesideALaterSetBringsNothingOld(t *testing.T) {
	retried(t, 2, 20*time.Second, func(t *testing.T, f *fleet, _ *logged) {
		f.query = takes(10 * time.Millisecond)
		n := f.nodes[0]
		for i := range soak(10, 200) {
			key := fmt.Sprint("k", i)
			gets(t, n, key, value(key, 1))
			back := n.away()
			unconfirmed(t, n.Delete(t.Context(), key))
			back()
			time.Sleep(time.Duration(5*i) * time.Millisecond % (80 * time.Millisecond))
			v2 := f.write(key)
			must(t, n.Set(t.Context(), key, v2))
			f.never(key, value(key, 1))
			for range 20 {
				for _, n := range f.nodes {
					gets(t, n, key, v2)
				}
				time.Sleep(5 * time.Millisecond)
			}
		}
	})
}

func TestADeleteIsGivenUpAfterRetryDeletes(t *testing.T) {
	retried(t, 1, 2*time.Second, func(t *testing.T, f *fleet, log *logged) {
		f.fans(t, "k", 2)
		back := f.nodes[0].away()
		unconfirmed(t, f.nodes[0].Delete(t.Context(), "k0"))
		time.Sleep(3 * time.Second)
		equal(t, "given up", log.lines("given up", f.nodes[0].RedisKey("k0")), 1)
		back()
		time.Sleep(5 * time.Second)
		f.stores("k0", value("k0", 1))
	})
}

func TestWithRetryDeletesOffNothingIsRetried(t *testing.T) {
	retried(t, 1, cache.Off, func(t *testing.T, f *fleet, log *logged) {
		f.fans(t, "k", 1)
		back := f.nodes[0].away()
		unconfirmed(t, f.nodes[0].Delete(t.Context(), "k0"))
		unconfirmed(t, f.nodes[0].Clear(t.Context()))
		back()
		time.Sleep(5 * time.Second)
		f.stores("k0", value("k0", 1))
		equal(t, "retries", log.lines("tried again"), 0)
	})
}

func TestCloseSaysWhichInvalidationsItGivesUp(t *testing.T) {
	retried(t, 1, time.Hour, func(t *testing.T, f *fleet, log *logged) {
		f.fans(t, "k", 2)
		n := f.nodes[0]
		defer n.away()()
		unconfirmed(t, n.Delete(t.Context(), "k0", "k1"))
		unconfirmed(t, n.Clear(t.Context()))
		began := time.Now()
		must(t, n.Close())
		within(t, "Close", time.Since(began), 2*f.options.RedisTimeout)
		equal(t, "given up", log.lines("given up"), 3)
	})
}

// What is documented: 16,384 keys. The others are given up at once, and said to be.
func TestTheInvalidationsThatWaitAreBounded(t *testing.T) {
	const most, over = 1 << 14, 100
	retried(t, 1, time.Hour, func(t *testing.T, f *fleet, log *logged) {
		n := f.nodes[0]
		back := n.away()
		keys := make([]string, most+over)
		for i := range keys {
			keys[i] = fmt.Sprint("k", i)
		}
		unconfirmed(t, n.Delete(t.Context(), keys...))
		equal(t, "given up", log.lines("given up"), over)
		must(t, n.Close()) // to retry all of them takes long
		back()
	})
}
