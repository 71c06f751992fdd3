package cache_test

import (
	"errors"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
)

// untold checks that an invalidation says that others may serve the old value for so long.
func untold(t *testing.T, err error, bound time.Duration) {
	t.Helper()
	e, ok := errors.AsType[*cache.InvalidationError](err)
	if !ok || e.Bound != bound {
		t.Errorf("got %v, want an InvalidationError with the bound %v", err, bound)
	}
}

// cuts are the two kinds: with a reset, and without any sign.
var cuts = []struct {
	name string
	cut  func(ears)
}{
	{"reset", ears.refuse},
	{"black hole", ears.silence},
}

// olds reads keys on the nodes every 50 ms for d and returns when one of their first values was last
// served as the answer to a call. It is for use in a bubble.
func (f *fleet) olds(t *testing.T, keys []string, nodes []*node, d time.Duration) (last time.Duration) {
	t.Helper()
	for began := time.Now(); time.Since(began) < d; time.Sleep(50 * time.Millisecond) {
		for _, n := range nodes {
			for _, key := range keys {
				asked := time.Since(began)
				v, err := n.Get(t.Context(), key)
				must(t, err)
				if v == value(key, 1) {
					last = asked
				}
			}
		}
	}
	return last
}

// many is the case's number of keys.
func many() int { return soak(12, 100) }

// The case's settings: LocalTTL 10 min, 100 keys, a cut of 2 s.
func TestB63_NothingOldIsReadAfterACutOfTheMessages(t *testing.T) {
	for _, c := range cuts {
		t.Run(c.name, func(t *testing.T) {
			inBubbleWithEars(t, 3, hours(), func(t *testing.T, f *fleet, all ears) {
				f.query = takes(0)
				deleted, others := f.fans(t, "deleted", many()), f.fans(t, "other", 10)
				time.Sleep(time.Second)
				c.cut(all[1:])
				for _, key := range deleted {
					f.write(key)
				}
				must(t, f.nodes[0].Delete(t.Context(), deleted...))
				during := f.olds(t, deleted, f.nodes[1:], 2*time.Second)
				within(t, "an old value during the cut", during, time.Second)

				all.restore()
				equal(t, "when an old value was read after it", f.olds(t, deleted, f.nodes, 2*time.Second), 0)
				f.olds(t, others, f.nodes, 2*time.Second)
				equal(t, "loads of what was deleted", f.queries(deleted...), 2*len(deleted))
				equal(t, "loads of the rest", f.queries(others...), len(others))
			})
		})
	}
}

// Nobody reads during the cut, so nothing was verified meanwhile, and the reconnect is what counts.
func TestB63_ACopyFromBeforeACutIsVerifiedRatherThanLoaded(t *testing.T) {
	for _, c := range cuts {
		t.Run(c.name, func(t *testing.T) {
			inBubbleWithEars(t, 3, hours(), func(t *testing.T, f *fleet, all ears) {
				f.query = takes(0)
				deleted, others := f.fans(t, "deleted", many()), f.fans(t, "other", many())
				c.cut(all[1:])
				for _, key := range deleted {
					f.write(key)
				}
				must(t, f.nodes[0].Delete(t.Context(), deleted...))
				must(t, f.probe.XTrimMaxLen(t.Context(), streamKey, 1).Err()) // longer away than the stream reaches
				time.Sleep(2 * time.Second)
				all.restore()
				for _, n := range f.nodes {
					for _, key := range deleted {
						gets(t, n, key, value(key, 2))
					}
					for _, key := range others {
						gets(t, n, key, value(key, 1))
					}
				}
				time.Sleep(3 * time.Second) // now it hears again
				gets(t, f.nodes[1], others[0], value(others[0], 1))
				whole := f.begun("get")
				for _, n := range f.nodes {
					for _, key := range others {
						e, err := n.GetEntry(t.Context(), key)
						if err != nil || e.Value != value(key, 1) || e.State != cache.StateFresh {
							t.Errorf("got %+v, %v of %s", e, err, key)
						}
					}
				}
				equal(t, "bodies read again", f.begun("get"), whole)
				equal(t, "loads of the rest", f.queries(others...), len(others))
			})
		})
	}
}

// A cut in which nothing was lost: the stream goes on where it was left.
func TestB63_ACutInWhichNothingIsLostCostsNoVerification(t *testing.T) {
	inBubbleWithEars(t, 2, hours(), func(t *testing.T, f *fleet, all ears) {
		f.query = takes(0)
		keys := f.fans(t, "k", 50)
		time.Sleep(time.Second)
		all[1].refuse()
		f.write(keys[0])
		must(t, f.nodes[0].Delete(t.Context(), keys[0]))
		time.Sleep(300 * time.Millisecond)
		all[1].restore()
		time.Sleep(2 * time.Second)
		asked := f.begun("get", "getrange", "evalsha", "eval")
		for _, key := range keys[1:] {
			gets(t, f.nodes[1], key, value(key, 1))
		}
		equal(t, "questions to Redis", f.begun("get", "getrange", "evalsha", "eval")-asked, 0)
		gets(t, f.nodes[1], keys[0], value(keys[0], 2))
	})
}

// The only message there ever was, and the stream with it, are lost in one cut: the reader finds the
// stream as empty as it was.
func TestB63_TheFirstMessageOfAllIsMissedToo(t *testing.T) {
	inBubble(t, 0, hours(), func(t *testing.T, f *fleet) {
		f.query = takes(0)
		all := f.growEars(2)
		time.Sleep(time.Second)
		f.fans(t, "k", 1)
		all[1].silence()
		f.write("k0")
		must(t, f.nodes[0].Delete(t.Context(), "k0"))
		must(t, f.probe.Del(t.Context(), streamKey).Err())
		all[1].restore()
		time.Sleep(time.Second)
		gets(t, f.nodes[1], "k0", value("k0", 2))
	})
}
