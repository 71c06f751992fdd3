package rebuild

import (
	"fmt"
	"testing"
	"time"
)

func TestAnAbsentKeyBecomesAPlaceholderForTheLengthOfTheLease(t *testing.T) {
	onServers(t, func(r *rig) {
		for range 2 {
			answer := r.acquire("A", asking{lease: 20 * time.Second})
			equal(r.t, "status", answer.Status, statusLeased)
			equal(r.t, "start", answer.Entry.Start, answer.Now)
			after(r.t, "end of the lease", answer.Entry.LeaseUntil, answer.Now, 20*time.Second)
			want := Entry{Header: Header{Kind: KindLease, Codec: '-', Compression: '-', Hash: r.key.Hash,
				Token: token("A"), Start: answer.Entry.Start, LeaseUntil: answer.Entry.LeaseUntil}}
			equal(r.t, "entry", r.entry(), want)
			equal(r.t, "entry in the answer", answer.Entry, want)
			between(r.t, "lifetime", r.life(), 10*time.Second, 20*time.Second)
			r.delete(0)
		}
	})
}

func TestThePlaceholderGoesWithItsLease(t *testing.T) {
	passing(t, func(r *rig) {
		r.lease("A")
		time.Sleep(30*time.Second - time.Millisecond)
		equal(r.t, "kind", r.entry().Kind, KindLease)
		time.Sleep(time.Millisecond)
		r.gone()
	})
}

// situations are entries that an acquire may find, with what it answers in each mode.
var situations = []struct {
	name      string
	put       func(*rig)
	look, try Status
	payload   string // that comes with the answer
}{
	{"nothing", func(*rig) {}, statusAbsent, statusLeased, ""},
	{"a fresh value", func(r *rig) { r.put(r.valued(30*time.Second, time.Minute, time.Hour), "v1") }, statusFresh, statusFresh, "v1"},
	{"a stale value", func(r *rig) { r.put(r.valued(0, time.Minute, time.Hour), "v1") }, statusIdle, statusLeased, "v1"},
	{"a value for errors", func(r *rig) { r.put(r.valued(-time.Second, 0, time.Hour), "v1") }, statusIdle, statusLeased, "v1"},
	{"a value past its windows", func(r *rig) { r.put(r.valued(-time.Second, -time.Second, 0), "v1") }, statusIdle, statusLeased, ""},
	{"a value from ahead of the clock", func(r *rig) {
		h := r.valued(30*time.Second, time.Minute, time.Hour)
		h.Version = r.now() + 5_000_000
		r.put(h, "v1")
	}, statusIdle, statusLeased, "v1"},
	{"not found", func(r *rig) { r.put(Header{Kind: KindNotFound, Fresh: r.in(30 * time.Second)}, "") }, statusFresh, statusFresh, ""},
	{"not found, some time ago", func(r *rig) { r.put(Header{Kind: KindNotFound, Fresh: r.in(0)}, "") }, statusIdle, statusLeased, ""},
	{"not found, from ahead of the clock", func(r *rig) {
		r.put(Header{Kind: KindNotFound, Identity: Identity{r.now() + 5_000_000, token("writer")}, Fresh: r.in(30 * time.Second)}, "")
	}, statusIdle, statusLeased, ""},
	{"a failure", func(r *rig) {
		r.put(Header{Kind: KindFailed, RetryAfter: r.in(30 * time.Second), Failures: 1}, "no route")
	}, statusBackoff, statusBackoff, "no route"},
	{"a failure some time ago", func(r *rig) { r.put(Header{Kind: KindFailed, RetryAfter: r.in(0), Failures: 1}, "no route") }, statusIdle, statusLeased, "no route"},
	{"a stale value after a failure", func(r *rig) {
		h := r.valued(0, time.Minute, time.Hour)
		h.RetryAfter = r.in(30 * time.Second)
		r.put(h, "v1")
	}, statusBackoff, statusBackoff, "v1"},
	{"a fresh value after a failure", func(r *rig) {
		h := r.valued(30*time.Second, time.Minute, time.Hour)
		h.RetryAfter = r.in(30 * time.Second)
		r.put(h, "v1")
	}, statusFresh, statusFresh, "v1"},
	{"not storable", func(r *rig) { r.put(Header{Kind: KindPass, Fresh: r.in(30 * time.Second)}, "") }, statusPass, statusPass, ""},
	{"not storable, some time ago", func(r *rig) { r.put(Header{Kind: KindPass, Fresh: r.in(0)}, "") }, statusIdle, statusLeased, ""},
	{"a lease", func(r *rig) { r.put(r.leased(Header{Kind: KindLease}, "B", 30*time.Second), "") }, statusHeld, statusHeld, ""},
	{"a lease that ran out", func(r *rig) { r.put(r.leased(Header{Kind: KindLease}, "B", 0), "") }, statusIdle, statusLeased, ""},
	{"a lease from ahead of the clock", func(r *rig) {
		h := r.leased(Header{Kind: KindLease}, "B", 30*time.Second)
		h.Start = r.now() + 5_000_000
		r.put(h, "")
	}, statusIdle, statusLeased, ""},
	{"a lease on a stale value", func(r *rig) { r.put(r.leased(r.valued(0, time.Minute, time.Hour), "B", 30*time.Second), "v1") }, statusHeld, statusHeld, "v1"},
	{"a lease on a fresh value", func(r *rig) {
		r.put(r.leased(r.valued(30*time.Second, time.Minute, time.Hour), "B", 30*time.Second), "v1")
	}, statusFresh, statusFresh, "v1"},
	{"a lease within a back-off", func(r *rig) {
		r.put(r.leased(Header{Kind: KindFailed, RetryAfter: r.in(30 * time.Second)}, "B", 30*time.Second), "no route")
	}, statusHeld, statusHeld, "no route"},
	{"a hold-down", func(r *rig) { r.put(Header{Kind: KindLease, HoldDown: r.in(30 * time.Second)}, "") }, statusIdle, statusLeased, ""},
	{"an empty text", func(r *rig) { r.putRaw("", time.Hour) }, statusAbsent, statusLeased, ""},
	{"somebody else's text", func(r *rig) { r.putRaw("hello", time.Hour) }, statusUnreadable, statusLeased, ""},
	{"an entry that was cut", func(r *rig) {
		r.put(r.valued(30*time.Second, time.Minute, time.Hour), "v1")
		r.putRaw(r.raw()[:HeaderSize+1], time.Hour)
	}, statusUnreadable, statusLeased, ""},
	{"the entry of another key", func(r *rig) {
		h := r.valued(30*time.Second, time.Minute, time.Hour)
		h.Hash = r.key.Hash + 1
		r.putRaw(string(h.format()), time.Hour)
	}, statusUnreadable, statusLeased, ""},
}

func TestAnAcquireAnswersWithWhatItFinds(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, s := range situations {
			for mode, want := range map[Mode]Status{Look: s.look, Try: s.try, Wait: s.look} {
				r.remove()
				s.put(r)
				answer := r.acquire("A", asking{mode: mode})
				what := s.name + ", " + string(mode) + ": "
				equal(r.t, what+"status", answer.Status, want)
				if want == statusAbsent || want == statusUnreadable {
					continue
				}
				equal(r.t, what+"payload", answer.Entry.Message+answer.Entry.Payload, s.payload)
				equal(r.t, what+"leased", r.entry().Token == token("A"), want == statusLeased)
			}
		}
	})
}

func TestTheNodeJudgesAnEntryAsTheScriptDoes(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, s := range situations {
			r.remove()
			s.put(r)
			answer := r.acquire("A", asking{mode: Look})
			view := answer.Entry.view(answer.Now)
			for status, is := range map[Status]bool{
				statusFresh:   view.State == Fresh || view.State == NotFound,
				statusPass:    view.State == Pass,
				statusHeld:    view.Held && view.State != Fresh && view.State != NotFound && view.State != Pass,
				statusBackoff: view.Backoff && !view.Held && view.State != Fresh && view.State != NotFound && view.State != Pass,
			} {
				equal(r.t, s.name+": "+string(status), is, answer.Status == status)
			}
		}
	})
}

func TestLookingChangesNothing(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, s := range situations {
			r.remove()
			s.put(r)
			before := r.raw()
			r.acquire("A", asking{mode: Look, bar: farthest})
			equal(r.t, s.name, r.raw(), before)
		}
	})
}

func TestALateAcquireDoesNothing(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, s := range situations {
			for _, mode := range []Mode{Look, Try, Wait} {
				r.remove()
				s.put(r)
				before := r.raw()
				answer := r.acquire("A", asking{mode: mode, notAfter: r.now() - 1})
				equal(r.t, s.name+": status", answer.Status, statusLate)
				equal(r.t, s.name, r.raw(), before)
			}
		}
	})
}

func TestAnAcquireInTimeIsNotLate(t *testing.T) {
	onServers(t, func(r *rig) {
		equal(r.t, "status", r.acquire("A", asking{notAfter: r.now() + 60_000_000}).Status, statusLeased)
	})
	passing(t, func(r *rig) { // where the clock stands still
		equal(r.t, "status at the last moment", r.acquire("A", asking{notAfter: r.now()}).Status, statusLeased)
	})
}

func TestAskingAgainWithTheOwnTokenIsAnsweredAsBefore(t *testing.T) {
	onServers(t, func(r *rig) {
		first := r.acquire("A", asking{})
		before := r.raw()
		for _, mode := range []Mode{Look, Try, Wait} {
			again := r.acquire("A", asking{mode: mode, lease: time.Hour, bar: farthest})
			equal(r.t, "status", again.Status, statusLeased)
			equal(r.t, "entry", again.Entry, first.Entry)
		}
		equal(r.t, "what stands there", r.raw(), before)
		between(r.t, "lifetime", r.life(), 0, 30*time.Second)
	})
}

func TestTheOwnTokenIsLeasedAnewAfterItRanOut(t *testing.T) {
	onServers(t, func(r *rig) {
		h := r.leased(r.valued(0, time.Minute, time.Hour), "A", 0)
		r.put(h, "v1")
		answer := r.acquire("A", asking{})
		equal(r.t, "status", answer.Status, statusLeased)
		equal(r.t, "start", answer.Entry.Start, answer.Now)
	})
}

func TestABarAboveTheVersionLeasesAFreshEntry(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, kind := range []Kind{KindValue, KindNotFound} {
			for _, tc := range []struct {
				above Micros // the bar above the version
				want  Status
			}{{-1, statusFresh}, {0, statusFresh}, {1, statusLeased}, {farthest, statusLeased}} {
				h := r.valued(30*time.Second, time.Minute, time.Hour)
				h.Kind = kind
				r.put(h, "")
				bar := min(h.Version+tc.above, farthest)
				equal(r.t, string(kind), r.acquire("A", asking{bar: bar}).Status, tc.want)
			}
		}
	})
}

func TestABarBreaksNeitherALeaseNorABackoff(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, s := range situations {
			if s.try != statusHeld && s.try != statusBackoff && s.try != statusPass {
				continue
			}
			r.remove()
			s.put(r)
			equal(r.t, s.name, r.acquire("A", asking{bar: farthest}).Status, s.try)
		}
	})
}

func TestAPayloadThatIsAtHandIsNotSentAgain(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, s := range situations {
			if s.payload != "v1" {
				continue
			}
			r.remove()
			s.put(r)
			id := r.entry().Identity
			for have, want := range map[string]string{
				"":          "v1",
				id.text():   "",
				token("no"): "v1",
				Identity{id.Version, token("another")}.text():    "v1",
				Identity{id.Version + 1, token("writer")}.text(): "v1",
			} {
				answer := r.acquire("A", asking{mode: Look, have: have})
				equal(r.t, s.name+", have "+have, answer.Entry.Payload, want)
				equal(r.t, s.name+", have "+have+": length", answer.Entry.Body, 2)
			}
		}
	})
}

func TestTheMessageOfAFailureIsAlwaysSent(t *testing.T) {
	onServers(t, func(r *rig) {
		r.fail("A", r.lease("A"), failing{message: "no route"})
		have := Identity{r.now(), token("X")}.text()
		equal(r.t, "message", r.acquire("B", asking{have: have}).Entry.Message, "no route")
	})
}

func TestOnlyAWaiterRaisesTheFlagAndOnlyOnALeaseThatIsHeld(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, s := range situations {
			for mode, want := range map[Mode]bool{Look: false, Try: false, Wait: s.try == statusHeld} {
				r.remove()
				s.put(r)
				answer := r.acquire("A", asking{mode: mode})
				if answer.Status == statusAbsent || answer.Status == statusUnreadable {
					continue
				}
				equal(r.t, s.name+", "+string(mode)+": flag", r.entry().Waiters, want)
			}
		}
	})
}

func TestRaisingTheFlagChangesNothingElse(t *testing.T) {
	onServers(t, func(r *rig) {
		r.put(r.leased(r.valued(0, time.Minute, time.Hour), "B", 30*time.Second), "v1")
		before := r.raw()
		r.acquire("A", asking{mode: Wait})
		equal(r.t, "changed", differing(before, r.raw()), "[waiters]")
		r.acquire("C", asking{mode: Wait})
		equal(r.t, "changed by the second", differing(before, r.raw()), "[waiters]")
	})
}

func TestALeaseChangesNothingElseInTheEntry(t *testing.T) {
	onServers(t, func(r *rig) {
		h := r.valued(0, time.Minute, time.Hour)
		h.Row, h.Cost, h.HoldDown, h.Failures, h.RetryAfter = 7, time.Second, r.in(time.Minute), 3, r.in(0)
		r.put(h, "v1")
		before := r.raw()
		equal(r.t, "status", r.acquire("A", asking{}).Status, statusLeased)
		equal(r.t, "changed", differing(before, r.raw()), "[token start until]")
	})
}

func TestALeaseLengthensALifetimeAndNeverShortensIt(t *testing.T) {
	onServers(t, func(r *rig) {
		h := r.valued(0, time.Minute, time.Hour)
		for before, want := range map[time.Duration]time.Duration{time.Second: 30 * time.Second, time.Hour: time.Hour} {
			r.put(h, "v1")
			must(r.t, r.c.PExpire(r.t.Context(), r.key.Redis, before).Err())
			r.acquire("A", asking{})
			between(r.t, "lifetime", r.life(), want-10*time.Second, want)
		}
	})
}

func TestTheFlagOutlivesALeaseThatRunsOut(t *testing.T) {
	passing(t, func(r *rig) {
		r.store("W", "v1", storing{fresh: time.Millisecond, stale: time.Minute, ifError: time.Hour})
		time.Sleep(time.Second)
		r.flagged("A")
		time.Sleep(40 * time.Second)
		r.lease("B")
		equal(r.t, "flag", r.entry().Waiters, true)
	})
}

func TestAStartLiesAboveWhatTheEntryRemembers(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, tc := range []struct {
			situation      string
			version, start Micros // less now
			want           Micros // less that, or 0 for now
		}{
			{"all in the past", -5_000_000, -4_000_000, 0},
			{"the version a little ahead", 900_000, -4_000_000, 900_001},
			{"the start a little ahead", -5_000_000, 900_000, 900_001},
			{"both, the start further", 700_000, 900_000, 900_001},
			{"both, the version further", 900_000, 700_000, 900_001},
			{"the version far ahead", 5_000_000, -4_000_000, 0},
			{"the start far ahead", -5_000_000, 5_000_000, 0},
		} {
			h := r.valued(0, time.Minute, time.Hour)
			base := r.now()
			h.Version, h.Token, h.Start, h.LeaseUntil = base+tc.version, token("old"), base+tc.start, r.in(-time.Second)
			r.put(h, "v1")
			answer := r.acquire("A", asking{})
			equal(r.t, tc.situation+": status", answer.Status, statusLeased)
			want := answer.Now
			if tc.want > 0 {
				want = max(want, base+tc.want)
			}
			equal(r.t, tc.situation+": start", answer.Entry.Start, want)
		}
	})
}

// A hook that prints commands, as those for tracing do, must not read what is written meanwhile.
func TestAnAttemptIsPrintedAsItsToken(t *testing.T) {
	equal(t, "printed", fmt.Sprint(&attempt{token: "t"}), "t")
}
