package lock

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func (r *rig) start(name string, a acquiring) answer {
	r.t.Helper()
	return r.do(scripts.start, a.args(name)...)
}

// stores stores v as the result of name.
func (r *rig) stores(name, v string) answer {
	r.t.Helper()
	return r.do(scripts.store, token(name), "in:", "0", millis(time.Hour), v)
}

func (r *rig) forget(fence int64) answer {
	r.t.Helper()
	return r.do(scripts.forget, noToken, "in:", "0", fence)
}

func TestAResultTakesThePlaceOfTheLockAndOnlyItsOwnersDoes(t *testing.T) {
	onServers(t, func(r *rig) {
		equal(r.t, "who never had it", r.stores("a", "j0").text(0), "gone")
		equal(r.t, "nothing is there", r.raw(), "")
		first := r.start("a", acquiring{label: "first"})
		equal(r.t, "a", first.status, statusAcquired)
		equal(r.t, "b", r.start("b", acquiring{alive: alive}).status, statusBusy)
		equal(r.t, "by who waits", r.stores("b", "j2").text(0), "taken")
		for range 2 {
			equal(r.t, "by who has it", r.stores("a", "j1").status, statusDone)
		}
		raw := r.raw()
		equal(r.t, "magic", raw[:len(magicDone)], magicDone)
		equal(r.t, "result", raw[lockSize:], "j1")
		equal(r.t, "holder", strings.TrimRight(raw[lockOffsets[fHolder]:lockSize], " "), "first")
		equal(r.t, "lifetime", r.life() > time.Hour-time.Minute && r.life() <= time.Hour, true)

		lost := r.stores("b", "j2")
		equal(r.t, "by another then", lost.text(0), "taken")
		equal(r.t, "names the run", lost.int(1), first.int(0))
		for _, a := range []acquiring{{}, {alive: alive}, {barge: true}, {notAfter: r.now() - 1}} {
			told := r.start("b", a)
			equal(r.t, "told", told.status, statusDone)
			equal(r.t, "result", told.text(0), "j1")
		}
		equal(r.t, "late, of the runner itself", r.start("a", acquiring{}).status, statusDone)
		equal(r.t, "release", r.release("a").status, statusForeign)
		equal(r.t, "renewal", r.renew("a", time.Minute).text(0), "foreign")
		equal(r.t, "after all", r.raw(), raw)
	})
}

func TestALeaseThatHasEndedIsStoredUntilSomebodyElseHasIt(t *testing.T) {
	onServers(t, func(r *rig) {
		short := acquiring{lease: time.Millisecond}
		later := func() { time.Sleep(5 * time.Millisecond) } // real time: a lease ends
		r.start("a", short)
		later()
		equal(r.t, "nobody has it", r.stores("a", "j1").status, statusDone)
		must(r.t, r.c.Del(r.t.Context(), r.key).Err())
		r.start("a", short)
		later()
		r.start("b", acquiring{})
		equal(r.t, "b has it", r.stores("a", "j1").text(0), "taken")
		r.holds("b")
		r.release("b")
		equal(r.t, "b had it", r.stores("b", "j1").text(0), "broken")
		equal(r.t, "nobody's", r.stores("a", "j1").text(0), "gone")
	})
}

func TestWhatIsForgottenIsTheRunWithThatFence(t *testing.T) {
	onServers(t, func(r *rig) {
		equal(r.t, "nothing", r.forget(0).status, statusGone)
		fence := r.start("a", acquiring{label: "first"}).int(0)
		busy := r.forget(0)
		equal(r.t, "while it runs", busy.status, statusBusy)
		equal(r.t, "who runs it", busy.busy("x").Holder.Label, "first")
		r.stores("a", "j1")
		equal(r.t, "which", r.forget(0).int(0), fence)
		equal(r.t, "another", r.forget(fence-1).status, statusDone)
		equal(r.t, "that one", r.forget(fence).status, statusFree)
		equal(r.t, "again", r.forget(fence).status, statusGone)
		equal(r.t, "late, of the run", r.start("a", acquiring{}).status, statusAbandoned)
		equal(r.t, "its result, late", r.stores("a", "j1").text(0), "broken")
		equal(r.t, "lifetime", r.life() > 0 && r.life() <= retention, true)
		if next := r.start("b", acquiring{}).int(0); next <= fence {
			r.t.Errorf("fences: %d, then %d", fence, next)
		}
	})
}

func TestT34NoTextUnderTheKeyMakesAScriptOfAOnceFail(t *testing.T) {
	onServers(t, func(r *rig) {
		r.start("a", acquiring{})
		r.start("b", acquiring{alive: alive, inbox: token("in")})
		running := r.raw()
		r.stores("a", `j{"State":"paid"}`)
		done := r.raw()
		for range 500 {
			whole := pickOne(running, done)
			text := []byte(whole)[:pickOne(lockSize, lockSize+1, len(whole), rand.IntN(len(whole)))]
			for range rand.IntN(6) {
				if len(text) > 0 {
					text[rand.IntN(len(text))] = pickOne[byte]('F', 'O', 'K', '0', '-', 'f', ' ', 0, byte(rand.IntN(256)))
				}
			}
			must(r.t, r.c.Set(r.t.Context(), r.key, text, time.Hour).Err())
			switch rand.IntN(3) {
			case 0:
				r.start(pickOne("a", "b"), acquiring{alive: alive})
			case 1:
				r.stores(pickOne("a", "b"), "j1")
			default:
				r.forget(pickOne[int64](0, 1))
			}
			if left := r.life(); left <= 0 {
				r.t.Fatalf("lifetime %v after %q", left, text)
			}
		}
	})
}
