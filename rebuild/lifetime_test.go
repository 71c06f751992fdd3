package rebuild

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// walk does random things to one key, in the name of three that do not know of each other.
type walk struct {
	*rig
	rand   *rand.Rand
	starts map[string]Micros // the last lease of each
	did    []string
}

func (w *walk) name() string { return []string{"A", "B", "C"}[w.rand.IntN(3)] }

func (w *walk) chance() bool { return w.rand.IntN(4) == 0 }

func (w *walk) holdDown() time.Duration {
	if w.chance() {
		return time.Duration(w.rand.IntN(20_000)) * time.Millisecond
	}
	return 0
}

func (w *walk) notAfter() Micros {
	if w.chance() {
		return w.rig.now() - 1
	}
	return 0
}

func (w *walk) window() time.Duration { return time.Duration(1+w.rand.IntN(5000)) * time.Millisecond }

// steps are what a walk may do, each for a name whose last lease started at start.
var steps = map[string]func(w *walk, name string, start Micros) reply{
	"acquire": func(w *walk, name string, _ Micros) reply {
		mode := []Mode{Look, Try, Try, Wait}[w.rand.IntN(4)]
		answer := w.acquire(name, asking{mode: mode, lease: w.window(), notAfter: w.notAfter(), bar: Micros(w.rand.IntN(2)) * farthest})
		if answer.Status == statusLeased {
			w.starts[name] = answer.Entry.Start
		}
		return answer
	},
	"renew": func(w *walk, name string, start Micros) reply { return w.renew(name, start, w.window()) },
	"commit": func(w *walk, name string, start Micros) reply {
		fresh := w.window()
		stale := fresh + w.window()
		return w.commit(name, start, name, storing{fresh: fresh, stale: stale, ifError: stale + w.window(),
			row: uint64(w.rand.IntN(3)), setter: w.chance()})
	},
	"pass": func(w *walk, name string, start Micros) reply { return w.pass(name, start, w.window()) },
	"fail": func(w *walk, name string, start Micros) reply {
		return w.fail(name, start, failing{backoff: time.Millisecond, message: name})
	},
	"release": func(w *walk, name string, start Micros) reply { return w.release(name, start*Micros(w.rand.IntN(2))) },
	"delete":  func(w *walk, _ string, _ Micros) reply { return w.delete(w.holdDown()) },
	"expire":  func(w *walk, _ string, _ Micros) reply { return w.expire(w.holdDown()) },
	"seize": func(w *walk, name string, _ Micros) reply {
		answer := w.seize(name, seizing{row: uint64(w.rand.IntN(3)), holdDown: w.holdDown(), notAfter: w.notAfter()})
		if answer.Status == statusSeized {
			w.starts[name] = Micros(answer.int(3))
		}
		return answer
	},
}

// step does one of them, and checks what must hold after each.
func (w *walk) step(names []string) {
	what, name := names[w.rand.IntN(len(names))], w.name()
	before := w.raw()
	answer := steps[what](w, name, w.starts[name])
	w.did = append(w.did, what+" "+name+": "+string(answer.Status))
	raw := w.raw()
	if raw == "" {
		return
	}
	e, err := parseEntry(raw, w.key.Hash)
	if err != nil {
		w.lost("what stands there is no entry: %v", err)
	}
	held, _ := parseEntry(before, w.key.Hash)
	if answer.Status == statusCommitted && before != raw && (held.Token != token(name) || held.Start != w.starts[name]) {
		w.lost("a commit was accepted without its lease")
	}
	last := max(e.Fresh, e.Stale, e.IfError, e.HoldDown, e.LeaseUntil, e.RetryAfter)
	if left := w.life(); Millis(w.rig.now()/1000)+Millis(left/time.Millisecond) < last-1 {
		w.lost("the key lives for %v, less than what stands in it", left)
	}
}

func (w *walk) lost(format string, args ...any) {
	w.t.Helper()
	w.t.Logf("the last steps: %v", w.did[max(0, len(w.did)-12):])
	w.t.Fatalf(format, args...)
}

// TestWhateverIsDoneTheEntryStaysWholeAndLivesAsLongAsItMust walks at random. rig.lives checks
// after each step that the key is not there for ever.
func TestWhateverIsDoneTheEntryStaysWholeAndLivesAsLongAsItMust(t *testing.T) {
	names := slices.Sorted(maps.Keys(steps))
	run := func(r *rig, n int, pause func(*walk)) {
		seed := rand.Uint64()
		r.t.Logf("seed %d", seed)
		w := &walk{rig: r, rand: rand.New(rand.NewPCG(seed, 0)), starts: map[string]Micros{}}
		for range n {
			w.step(names)
			pause(w)
		}
	}
	t.Run("real", func(t *testing.T) {
		onReal(t, func(r *rig) { run(r, 1000, func(*walk) {}) })
	})
	t.Run("bubble", func(t *testing.T) {
		passing(t, func(r *rig) {
			run(r, 300, func(w *walk) { time.Sleep(time.Duration(w.rand.IntN(1500)) * time.Millisecond) })
		})
	})
}
