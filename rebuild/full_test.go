package rebuild

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/internal/redistest"
)

// full returns a rig on a server whose memory is full as soon as the returned function is called.
func full(t *testing.T) (*rig, func()) {
	s := redistest.RealOnly(t, "--maxmemory-policy", "noeviction")
	r := newRig(t, s.Client(t))
	loadScripts(t, r.c)
	return r, func() {
		must(t, r.c.ConfigSet(t.Context(), "maxmemory", "1").Err())
		if err := r.c.Set(t.Context(), "more", "x", 0).Err(); !redis.IsOOMError(err) {
			t.Fatalf("the server is not full: %v", err)
		}
	}
}

func (r *rig) roomy() { must(r.t, r.c.ConfigSet(r.t.Context(), "maxmemory", "0").Err()) }

func TestWithMemoryFullLeasesOfWhatIsThereGoOn(t *testing.T) {
	r, fill := full(t)
	r.listen()
	stale := func() Header {
		h := r.valued(0, time.Minute, time.Hour)
		h.Row = 7
		return h
	}
	for name, do := range map[string]func(start Micros) reply{
		"renew":                   func(start Micros) reply { return r.renew("A", start, 3*time.Second) },
		"fail":                    func(start Micros) reply { return r.fail("A", start, failing{message: "no route"}) },
		"pass":                    func(start Micros) reply { return r.pass("A", start, time.Second) },
		"release":                 func(start Micros) reply { return r.release("A", start) },
		"delete":                  func(Micros) reply { return r.delete(0) },
		"delete, hold-down":       func(Micros) reply { return r.delete(time.Minute) },
		"expire":                  func(Micros) reply { return r.expire(0) },
		"expire, hold-down":       func(Micros) reply { return r.expire(time.Minute) },
		"seize":                   func(Micros) reply { return r.seize("S", seizing{}) },
		"late seize, hold-down":   func(Micros) reply { return r.seize("S", seizing{holdDown: time.Minute, notAfter: 1}) },
		"commit of an older row":  func(start Micros) reply { return r.commit("A", start, "v2", storing{row: 1}) },
		"raising the flag":        func(Micros) reply { return r.acquire("B", asking{mode: Wait}) },
		"another's look":          func(Micros) reply { return r.acquire("B", asking{mode: Look}) },
		"refusal of a commit":     func(start Micros) reply { return r.commit("A", start+1, "v2", storing{}) },
		"the own acquire, again ": func(Micros) reply { return r.acquire("A", asking{}) },
	} {
		for _, h := range []Header{stale(), {Kind: KindLease, Row: 7, HoldDown: r.in(time.Minute)}, {Kind: KindFailed, Row: 7, Failures: 1}} {
			r.roomy()
			r.put(h, "some text")
			fill()
			answer := r.acquire("A", asking{})
			equal(t, name+": acquire on "+string(h.Kind), answer.Status, statusLeased)
			do(answer.Entry.Start)
		}
	}
	r.woken()
}

func TestWithMemoryFullACommitIsRefusedByTheServerAndPassIsNot(t *testing.T) {
	r, fill := full(t)
	r.put(r.valued(0, time.Minute, time.Hour), "v1")
	fill()
	start := r.flagged("A")
	before := r.raw()
	_, err := r.try(scripts.commit, r.commitArgs("A", start, "v2", storing{})...)
	if !redis.IsOOMError(err) || !refusedByServer(err) {
		t.Fatalf("got %v", err)
	}
	equal(t, "what stands there", r.raw(), before)
	r.listen()
	equal(t, "status", r.pass("A", start, time.Second).Status, statusPassed)
	equal(t, "wake-ups", r.woken(), 1)
}

func TestWithMemoryFullANewKeyIsNotLeased(t *testing.T) {
	r, fill := full(t)
	fill()
	if _, err := r.try(scripts.acquire, r.calls()["acquire"]...); !redis.IsOOMError(err) {
		t.Fatalf("got %v", err)
	}
	r.gone()
}

// TestWithMemoryFullAGetIsAnswered: on a key that is there, one load; the next second's callers
// load without a lease. On a key that is not, each node loads by itself.
func TestWithMemoryFullAGetIsAnsweredAndNodesDoNotQueue(t *testing.T) {
	r, fill := full(t)
	k := r.key
	r.put(r.valued(-time.Second, -time.Second, -time.Second), "v0")
	fill()
	db := newDatabase("v1")
	n := nodeOn(t, r.c, db, patient)
	equal(t, "value", n.get(k).value(), "v1")
	equal(t, "commits", n.Counts.Commits.Load(), 0)
	equal(t, "not stored", n.Counts.Unstorable.Load(), 1)
	equal(t, "kind", r.entry().Kind, KindPass)
	equal(t, "value of a new key", n.get(keyOf(k.Text+" new")).value(), "v1")
	equal(t, "loads", db.count(), 2)
	must(t, n.delete(k))
	r.gone()
}

func TestSilenceIsNotARefusalByTheServer(t *testing.T) {
	equal(t, "silence", refusedByServer(link.ErrUnavailable), false)
	equal(t, "an answer", refusedByServer(redistest.ReplyError("OOM command not allowed")), true)
}
