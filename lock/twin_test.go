package lock

import (
	"fmt"
	"slices"
	"strings"
)

// twin is a lock as the scripts keep it, in Go: the reference that they are held to.
type twin struct {
	what     kindOfTwin
	raw      string // of what is no lock
	released string
	state    string
	token    string
	fence    int64
	since    int64
	ends     int64
	lease    int64
	holder   string
	queue    []place
	dies     int64 // ms: the key's own end

	heard string   // the one inbox that somebody listens to
	sent  []string // messages to it
}

type kindOfTwin int

const (
	absent kindOfTwin = iota
	garbled
	present
)

// place is an entry of the queue.
type place struct {
	token, inbox string
	alive        int64
	holder       string
}

// told is what a script answers after status and time.
type told struct {
	status string
	values []any
}

func answers(status string, values ...any) told { return told{status, values} }

var free = twin{released: noToken, state: stateFree, token: noToken, holder: holderText("")}

// remove forgets the lock.
func (w *twin) remove() {
	heard, sent := w.heard, w.sent
	*w = free
	w.heard, w.sent = heard, sent
}

func millisOf(us int64) int64 { return us / 1000 }

// left is how long the lease of who has it lasts; a clock that stepped back does not make it longer.
func (w *twin) left(ms int64) int64 { return min(w.ends-ms, w.lease) }

func (w *twin) held(ms int64) bool {
	return w.what == present && w.state != stateFree && w.left(ms) > 0
}

// lasts sets the key's own end.
func (w *twin) lasts(ms int64) {
	w.what = present
	w.dies = ms + retention.Milliseconds()
	if w.state != stateFree {
		w.dies += max(w.left(ms), 0)
	}
}

func (w *twin) own(us int64, state, token string, lease int64, holder string) {
	ms := millisOf(us)
	w.state, w.token, w.holder = state, token, holder
	w.fence = max(w.fence+1, us)
	w.since, w.ends, w.lease = ms, ms+lease, lease
	w.lasts(ms)
}

func (w *twin) prolong(us, lease int64) {
	w.state, w.ends, w.lease = stateHeld, millisOf(us)+lease, lease
	w.lasts(millisOf(us))
}

// grant passes the lock on to the first who lives, but not beyond me.
func (w *twin) grant(us int64, counted bool, me string) bool {
	ms := millisOf(us)
	for len(w.queue) > 0 && w.queue[0].token != me {
		head := w.queue[0]
		w.queue = slices.Clone(w.queue[1:])
		if left := head.alive - ms; left <= 0 || left > alive.Milliseconds() {
			continue
		}
		w.own(us, stateGranted, head.token, claim.Milliseconds(), head.holder)
		if head.inbox == w.heard {
			w.sent = append(w.sent, grantText(w.token, w.fence, w.ends, ""))
		}
		if head.inbox == noToken || head.inbox == w.heard || !counted {
			return true
		}
	}
	return false
}

// clamp is what writing the lock as a whole does to the end of a lease.
func (w *twin) clamp(ms int64) { w.ends = ms + w.left(ms) }

func (w *twin) free(us int64, counted bool, me string, cut bool) int64 {
	whole := cut || len(w.queue) > 0
	w.released = w.token
	if w.grant(us, counted, me) {
		return 1
	}
	w.state, w.token = stateFree, noToken
	if whole {
		w.clamp(millisOf(us))
	}
	w.lasts(millisOf(us))
	return 0
}

// takeOut removes token from the queue.
func (w *twin) takeOut(token string) bool {
	n := len(w.queue)
	w.queue = slices.DeleteFunc(slices.Clone(w.queue), func(p place) bool { return p.token == token })
	return len(w.queue) < n
}

type acquireArgs struct {
	token, inbox, holder   string
	lease, alive, notAfter int64
	barge, counted         bool
}

func (w *twin) acquire(us int64, a acquireArgs) told {
	ms := millisOf(us)
	switch {
	case a.notAfter > 0 && us > a.notAfter:
		return answers(statusLate)
	case w.what == garbled:
		return answers(statusForeign)
	case w.held(ms) && w.token == a.token:
		w.prolong(us, a.lease)
		return answers(statusAcquired, w.fence, w.ends, int64(0), "")
	case w.released == a.token:
		return answers(statusAbandoned)
	case !w.held(ms):
		lost, before := int64(0), ""
		if w.state == stateHeld {
			lost, before = 1, w.holder
		}
		if a.barge || !w.grant(us, a.counted, a.token) {
			w.takeOut(a.token)
			w.own(us, stateHeld, a.token, a.lease, a.holder)
			return answers(statusAcquired, w.fence, w.ends, lost, before)
		}
	case w.ends-ms > w.lease:
		w.clamp(ms)
		w.lasts(ms)
	}
	at := w.wait(ms, a)
	return answers(statusBusy, w.ends-ms, at, int64(len(w.queue)), w.fence, w.since, w.holder)
}

// wait puts the caller into the queue, or refreshes its entry, and returns its place.
func (w *twin) wait(ms int64, a acquireArgs) int64 {
	at := slices.IndexFunc(w.queue, func(p place) bool { return p.token == a.token })
	switch {
	case a.alive == 0:
		return int64(at)
	case at >= 0:
		w.queue[at].inbox, w.queue[at].alive = a.inbox, ms+a.alive
	case len(w.queue) < queueCap:
		at = len(w.queue)
		w.queue = append(w.queue, place{a.token, a.inbox, ms + a.alive, a.holder})
	default:
		return -1
	}
	w.lasts(ms)
	return int64(at)
}

func (w *twin) renew(us int64, token string, lease int64) told {
	lost := func(why string) told { return answers(statusLost, why, w.fence, w.holder) }
	switch {
	case w.what == garbled:
		return answers(statusLost, "foreign", int64(0), "")
	case w.held(millisOf(us)) && w.token == token:
		w.prolong(us, lease)
		return answers(statusHeld, w.ends)
	case w.what == absent:
		return lost("gone")
	case w.token == token:
		return lost("expired")
	case w.released == token:
		return lost("broken")
	case w.state == stateFree:
		return lost("gone")
	}
	return lost("taken")
}

func (w *twin) release(us int64, token string, counted bool) told {
	if w.what == garbled {
		return answers(statusForeign)
	}
	waited := w.takeOut(token)
	if w.token == token {
		return answers(statusReleased, w.free(us, counted, token, waited))
	}
	if waited {
		w.clamp(millisOf(us))
		w.lasts(millisOf(us))
	}
	switch {
	case w.released == token:
		return answers(statusReleased, int64(0))
	case waited:
		return answers(statusLeft, int64(0))
	}
	return answers(statusGone, int64(0))
}

func (w *twin) breaking(us, fence int64, counted bool) told {
	switch {
	case w.what == garbled:
		return answers(statusForeign)
	case w.what == absent || w.state == stateFree:
		return answers(statusGone)
	case w.fence != fence:
		return answers(statusOther)
	}
	return answers(statusBroken, w.free(us, counted, noToken, false))
}

func (w *twin) inspect(us int64) told {
	if w.what == garbled {
		return answers(statusForeign)
	}
	ms := millisOf(us)
	state, ends := stateFree, w.ends
	if w.held(ms) {
		state = w.state
	}
	if w.what == present {
		ends = ms + w.left(ms)
	}
	return answers(statusSeen, state, w.fence, w.since, ends, int64(len(w.queue)), w.holder, w.token)
}

// wire is what is to stand in Redis.
func (w *twin) wire() string {
	if w.what == garbled {
		return w.raw
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s%s%s%013x%011x%011x%08x%s", magic, w.released, w.state, w.token, w.fence, w.since, w.ends, w.lease, w.holder)
	for _, p := range w.queue {
		fmt.Fprintf(&b, "%s%s%011x%s", p.token, p.inbox, p.alive, p.holder)
	}
	return b.String()
}
