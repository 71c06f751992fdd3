package rebuild

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// TestWithoutTheRightToPublishNothingIsLeftHalfDone: a script has written everything before it
// publishes, and says that it could not.
func TestWithoutTheRightToPublishNothingIsLeftHalfDone(t *testing.T) {
	for situation, rights := range map[string][]any{
		"no channel":                {"+@all", "resetchannels"},
		"only somebody's channels":  {"+@all", "resetchannels", "&theirs:*"},
		"no command that publishes": {"+@all", "-publish", "allchannels"},
	} {
		t.Run(situation, func(t *testing.T) {
			s := redistest.RealOnly(t)
			admin := newRig(t, s.Client(t))
			user := append([]any{"ACL", "SETUSER", "app", "on", ">secret", "~*"}, rights...)
			must(t, admin.c.Do(t.Context(), user...).Err())
			app := *admin
			app.c = s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
			for _, e := range endings {
				for _, h := range []Header{app.valued(0, time.Minute, time.Hour), {Kind: KindLease}} {
					endAsBoth(t, admin, &app, h, e.name, e.do)
				}
			}
			answer := app.renew("nobody", 1, time.Second)
			equal(t, "a lost renewal", answer.Status, statusLost)
			equal(t, "its wake-up", answer.int(2), -1)
		})
	}
}

// endAsBoth ends a lease on h with the right to publish and without, and compares.
func endAsBoth(t *testing.T, admin, app *rig, h Header, name string, do func(*rig, Micros) reply) {
	t.Helper()
	h = app.leased(h, "A", time.Minute)
	h.Waiters, h.Row = true, 7
	end := func(r *rig) (reply, Entry) {
		r.put(h, "")
		answer := do(r, h.Start)
		e, _ := parseEntry(r.raw(), r.key.Hash)
		return answer, e
	}
	with, left := end(admin)
	without, leftToo := end(app)
	equal(t, name+": status", without.Status, with.Status)
	equal(t, name+": wake-up", with.int(2), 1)
	equal(t, name+": wake-up without the right", without.int(2), -1)
	for _, e := range []*Entry{&left, &leftToo} { // the clock went on between the two
		e.Fresh, e.Stale, e.IfError, e.HoldDown, e.RetryAfter = 0, 0, 0, 0, 0
	}
	equal(t, name+": what is left", leftToo, left)
}

// TestANodeThatMayNotPublishWorksAndCountsIt: those who wait for it find out by polling.
func TestANodeThatMayNotPublishWorksAndCountsIt(t *testing.T) {
	s := redistest.RealOnly(t)
	must(t, s.Client(t).Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "resetchannels").Err())
	mute := s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" })
	for situation, other := range map[string]*redis.Client{
		"the waiter may subscribe": s.Client(t),
		"nor may the waiter":       s.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" }),
	} {
		t.Run(situation, func(t *testing.T) {
			db := newDatabase("v1")
			a, b := nodeOn(t, mute, db, patient), nodeOn(t, other, db, patient)
			k := keyOf(situation)
			resume := db.pause()
			holder := a.goGet(k)
			redistest.Eventually(t, longEnough, func() bool { return db.count() == 1 }, "the load begins")
			waiter := b.goGet(k)
			redistest.Eventually(t, longEnough, func() bool { return b.Counts.Waits.Load() == 1 }, "the other node waits")
			redistest.Eventually(t, longEnough, func() bool {
				e, err := parseEntry(mute.Get(t.Context(), k.Redis).Val(), k.Hash)
				return err == nil && e.Waiters == (situation == "the waiter may subscribe")
			}, "the flag is up if it can be")
			resume()
			equal(t, "holder", holder.wait().value(), "v1")
			equal(t, "waiter", waiter.wait().value(), "v1")
			equal(t, "loads", db.count(), 1)
			refused := int64(0)
			if situation == "the waiter may subscribe" {
				refused = 1
			}
			equal(t, "wake-ups refused", a.Counts.WakeupRefused.Load(), refused)
		})
	}
}
