package lock

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestALockIsTakenOnceAndPassedOnInOrder(t *testing.T) {
	onServers(t, func(r *rig) {
		first := r.acquire("a", acquiring{label: "first"})
		equal(r.t, "a", first.status, statusAcquired)
		equal(r.t, "b", r.waits("b").status, statusBusy)
		c := r.waits("c")
		equal(r.t, "place of c", c.int(1), 1)
		equal(r.t, "waiting", c.int(2), 2)
		equal(r.t, "holder", strings.TrimRight(c.text(5), " "), "first")
		equal(r.t, "release", r.release("a").status, statusReleased)
		r.holds("b")
		equal(r.t, "release of b", r.release("b").status, statusReleased)
		r.holds("c")
		second := r.acquire("c", acquiring{})
		equal(r.t, "c", second.status, statusAcquired)
		if second.int(0) <= first.int(0)+1 {
			r.t.Errorf("fences: %d, then %d", first.int(0), second.int(0))
		}
	})
}

func TestAReleaseMayBeRepeated(t *testing.T) {
	onServers(t, func(r *rig) {
		r.acquire("a", acquiring{})
		for range 3 {
			equal(r.t, "status", r.release("a").status, statusReleased)
		}
		r.acquire("b", acquiring{})
		equal(r.t, "while b has it", r.release("a").status, statusReleased)
		r.holds("b")
		equal(r.t, "life", r.life() > 30*time.Second, true)
		equal(r.t, "who never had it", r.release("c").status, statusGone)
	})
}

func TestWhatWasReleasedIsNotTakenByALateAcquire(t *testing.T) {
	onServers(t, func(r *rig) {
		r.acquire("a", acquiring{})
		r.release("a")
		equal(r.t, "again", r.acquire("a", acquiring{}).status, statusAbandoned)
		equal(r.t, "too late", r.acquire("b", acquiring{notAfter: r.now() - 1}).status, statusLate)
		equal(r.t, "in time", r.acquire("b", acquiring{notAfter: r.now() + 1e6}).status, statusAcquired)
	})
}

func TestT32WhatIsNoLockIsNeverTouched(t *testing.T) {
	onServers(t, func(r *rig) {
		r.acquire("a", acquiring{})
		whole := r.raw()
		r.release("a")
		free := r.raw()
		for situation, text := range map[string]string{
			"another format, free": strings.Replace(free, magic, "LVK2", 1),
			"no number, free":      strings.Replace(free, free[lockOffsets[fFence]:lockOffsets[fSince]], "not a number!", 1),
			"another format":       strings.Replace(whole, magic, "LVK2", 1),
			"cut":                  whole[:len(whole)-1],
			"longer":               whole + "x",
			"foreign":              "somebody's",
			"empty":                "",
			"no number":            strings.Replace(whole, whole[lockOffsets[fFence]:lockOffsets[fSince]], "not a number!", 1),
		} {
			must(r.t, r.c.Set(r.t.Context(), r.key, text, time.Hour).Err())
			equal(r.t, situation+": acquire", r.waits("b").status, statusForeign)
			equal(r.t, situation+": renew", r.renew("a", time.Second).text(0), "foreign")
			equal(r.t, situation+": release", r.release("a").status, statusForeign)
			equal(r.t, situation+": after all", r.raw(), text)
		}
	})
}

func TestT34NoTextUnderTheKeyMakesAScriptFail(t *testing.T) {
	onServers(t, func(r *rig) {
		r.acquire("a", acquiring{})
		r.waits("b")
		r.waits("c")
		whole := r.raw()
		for range 500 {
			text := []byte(whole)[:pickOne(lockSize, lockSize+entrySize, len(whole), rand.IntN(len(whole)))]
			for range 1 + rand.IntN(6) {
				if len(text) > 0 {
					text[rand.IntN(len(text))] = pickOne[byte]('F', 'G', '0', '-', 'f', ' ', 0, byte(rand.IntN(256)))
				}
			}
			must(r.t, r.c.Set(r.t.Context(), r.key, text, time.Hour).Err())
			script := pickOne(scripts.acquire, scripts.renew, scripts.release, scripts.breaking, scripts.inspect)
			args := acquiring{alive: alive, barge: rand.IntN(2) == 0}.args(pickOne("a", "b", "d"))
			if script == scripts.breaking {
				args[3] = pickOne(int64(0), 1<<40)
			}
			if a, err := r.try(script, args...); err != nil || a.status == "" {
				r.t.Fatalf("%v: %q of %q", err, a.status, text)
			}
			if left := r.life(); left <= 0 {
				r.t.Fatalf("lifetime %v after %q", left, text)
			}
		}
	})
}

func pickOne[T any](from ...T) T { return from[rand.IntN(len(from))] }

func TestTheScriptsAnswerInNumbersAndTextsOnly(t *testing.T) {
	onServers(t, func(r *rig) {
		r.acquire("a", acquiring{})
		for _, a := range []answer{r.waits("b"), r.renew("a", time.Second), r.do(scripts.inspect, noToken, "in:", "0"), r.release("a")} {
			for i, v := range a.values {
				switch v.(type) {
				case int64, string:
				default:
					r.t.Errorf("%s: value %d is a %T", a.status, i, v)
				}
			}
		}
	})
}
