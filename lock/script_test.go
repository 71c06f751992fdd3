package lock

import (
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
		for situation, text := range map[string]string{
			"another format": strings.Replace(whole, magic, "LVK2", 1),
			"cut":            whole[:len(whole)-1],
			"longer":         whole + "x",
			"foreign":        "somebody's",
			"empty":          "",
			"no number":      strings.Replace(whole, whole[lockOffsets[fFence]:lockOffsets[fSince]], "not a number!", 1),
		} {
			must(r.t, r.c.Set(r.t.Context(), r.key, text, time.Hour).Err())
			equal(r.t, situation+": acquire", r.waits("b").status, statusForeign)
			equal(r.t, situation+": renew", r.renew("a", time.Second).text(0), "foreign")
			equal(r.t, situation+": release", r.release("a").status, statusForeign)
			equal(r.t, situation+": after all", r.raw(), text)
		}
	})
}

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
