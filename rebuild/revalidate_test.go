package rebuild

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// talk is what the loads of a database are told, and what they say. Without an answer of its own
// a load brings the database's value, of row 7.
type talk struct {
	mu    sync.Mutex // guards what follows
	tales []tale
	says  func(base Copy, o *Outcome)
}

// tale is what one load was told of the value that it replaces; the zero one if of none.
type tale struct {
	value   string
	row     uint64
	version Micros
	age     time.Duration
}

const firstRow = 7

// listensTo makes loads of db tell what they are told.
func listensTo(db *database) *talk {
	tk := &talk{}
	db.answer = tk.answer
	return tk
}

func (tk *talk) answer(base Copy, age time.Duration, o *Outcome) {
	tk.mu.Lock()
	defer tk.mu.Unlock()
	var told tale
	if base != nil {
		m := base.Meta()
		told = tale{base.(*text).value, m.Row, m.Version, age}
	}
	tk.tales = append(tk.tales, told)
	o.Row = firstRow
	if tk.says != nil {
		tk.says(base, o)
	}
}

// say changes what loads answer that end from now on.
func (tk *talk) say(f func(base Copy, o *Outcome)) {
	tk.mu.Lock()
	defer tk.mu.Unlock()
	tk.says = f
}

// told checks how many loads have ended, and what the last one was told.
func (tk *talk) told(t *testing.T, loads int, want tale) {
	t.Helper()
	tk.mu.Lock()
	defer tk.mu.Unlock()
	equal(t, "loads that have ended", len(tk.tales), loads)
	equal(t, "what the last was told", tk.tales[loads-1], want)
}

// notModified answers so wherever there is something that may not be.
func notModified(base Copy, o *Outcome) {
	if base != nil {
		*o = Outcome{NotModified: true}
	}
}

// eager refreshes early from the last fifth of the fresh time on: loads that take no time cost a
// microsecond, and one read in 100,000 does not begin it.
func eager(p *Policy) { p.EarlyRefresh = 1e12 }

// replacements are the ways in which a value of a minute that has been loaded at 0 is replaced.
var replacements = map[string]struct {
	after time.Duration
	ask   func(n *testNode, k Key)
}{
	"a stale value":         {time.Minute + time.Second, func(n *testNode, k Key) { n.get(k) }},
	"one for errors":        {10 * time.Minute, func(n *testNode, k Key) { n.get(k) }},
	"a fresh one, early":    {55 * time.Second, func(n *testNode, k Key) { n.get(k) }},
	"a fresh one, on order": {10 * time.Second, func(n *testNode, k Key) { n.goRefresh(k).wait() }},
	"an expired one":        {10 * time.Second, func(n *testNode, k Key) { must(n.t, n.expire(k)); n.get(k) }},
	"one that is too stale for its caller": {time.Minute + time.Second, func(n *testNode, k Key) {
		n.goFresh(k).wait()
	}},
}

func TestALoadIsToldOfTheValueThatItReplaces(t *testing.T) {
	for situation, tc := range replacements {
		for _, where := range []string{"the node that loaded it", "another node"} {
			t.Run(situation+" on "+where, func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
					k, db := keyOf("k"), newDatabase("v1")
					tk := listensTo(db)
					n := newNode(t, b, db, eager)
					other := newNode(t, b, db, eager)
					n.get(k)
					version := rigOf(t, b, k).entry().Version
					time.Sleep(tc.after)
					if where == "another node" {
						n = other
					}
					db.set("v2")
					tc.ask(n, k)
					synctest.Wait()
					tk.told(t, 2, tale{"v1", firstRow, version, tc.after})
					equal(t, "value", n.get(k).value(), "v2")
				})
			})
		}
	}
}

// The node still holds what another node has replaced.
func TestALoadIsToldOfTheNewestValueInRedis(t *testing.T) {
	for _, after := range []time.Duration{time.Minute + time.Second, 10 * time.Minute} {
		inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
			k, db := keyOf("k"), newDatabase("v1")
			tk := listensTo(db)
			n, other := newNode(t, b, db), newNode(t, b, db)
			n.get(k)
			time.Sleep(2 * time.Second)
			db.set("v2")
			tk.say(func(_ Copy, o *Outcome) { o.Row = firstRow + 1 })
			other.goRefresh(k).wait()
			version := rigOf(t, b, k).entry().Version
			time.Sleep(after)
			equal(t, "what the node holds", n.kept(k), "v1")
			n.get(k)
			synctest.Wait()
			tk.told(t, 3, tale{"v2", firstRow + 1, version, after})
		})
	}
}

func TestWithoutRedisALoadIsToldOfTheNodesOwnValue(t *testing.T) {
	for situation, tc := range replacements {
		if strings.Contains(situation, "expired") {
			continue // without stale entries to mark, Expire is Delete
		}
		t.Run(situation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, db := keyOf("k"), newDatabase("v1")
				tk := listensTo(db)
				n := lonelyNode(t, db, eager)
				n.get(k)
				time.Sleep(tc.after)
				db.set("v2")
				tc.ask(n, k)
				synctest.Wait()
				tk.told(t, 2, tale{"v1", firstRow, 0, tc.after})
				equal(t, "value", n.get(k).value(), "v2")
			})
		})
	}
}

func TestWhileRedisIsAwayALoadIsToldOfTheNodesOwnValue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		tk := listensTo(db)
		n := newNode(t, b, db)
		n.get(k)
		version := rigOf(t, b, k).entry().Version
		n.faults.Fail(redistest.Any, nil)
		time.Sleep(10 * time.Minute)
		tk.say(notModified)
		n.get(k)
		tk.told(t, 2, tale{"v1", firstRow, version, 10 * time.Minute})
		time.Sleep(10 * time.Minute)
		n.get(k)
		tk.told(t, 3, tale{"v1", firstRow, 0, 10 * time.Minute}) // now it is one that Redis does not hold
	})
}

func TestWhereNothingIsThereALoadIsToldOfNothing(t *testing.T) {
	for situation, prepare := range map[string]func(n, other *testNode, k Key){
		"nothing was": func(n, other *testNode, k Key) { n.get(keyOf("another key")) },
		"it was deleted here": func(n, other *testNode, k Key) {
			n.get(k)
			must(n.t, n.delete(k))
		},
		"it was deleted elsewhere": func(n, other *testNode, k Key) {
			n.get(k)
			must(n.t, other.delete(k))
			time.Sleep(2 * time.Second)
		},
		"it was not found": func(n, other *testNode, k Key) {
			n.shelf.db.edit(func() { n.shelf.db.err = loader.ErrNotFound })
			n.get(k)
			n.shelf.db.edit(func() { n.shelf.db.err = nil })
			n.get(keyOf("another key"))
			time.Sleep(5 * time.Second)
		},
		"its load failed": func(n, other *testNode, k Key) {
			n.shelf.db.edit(func() { n.shelf.db.err = errRoute })
			n.get(k)
			n.shelf.db.edit(func() { n.shelf.db.err = nil })
			n.get(keyOf("another key"))
			time.Sleep(700 * time.Millisecond)
			equal(n.t, "kind", rigOfNode(n, k).entry().Kind, KindFailed)
		},
		"it may not be stored": func(n, other *testNode, k Key) {
			n.get(k)
			time.Sleep(2 * time.Minute)
			n.shelf.db.set(unencodable)
			n.goFresh(k).wait()
			n.shelf.db.set("v2")
			n.get(keyOf("another key"))
			equal(n.t, "kind", rigOfNode(n, k).entry().Kind, KindPass)
		},
	} {
		for _, lonely := range []bool{false, true} {
			if lonely && slices.Contains([]string{"it was deleted elsewhere", "its load failed", "it may not be stored"}, situation) {
				continue // these look at the entry
			}
			t.Run(fmt.Sprintf("%s, without Redis: %v", situation, lonely), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
					db := newDatabase("v1")
					tk := listensTo(db)
					n, other := newNode(t, b, db), newNode(t, b, db)
					if lonely {
						n = lonelyNode(t, db)
					}
					k := keyOf("k")
					prepare(n, other, k)
					before := len(tk.tales)
					n.get(k)
					tk.told(t, before+1, tale{})
				})
			})
		}
	}
}

// rigOfNode looks at Redis through the node's own client.
func rigOfNode(n *testNode, k Key) *rig {
	r := newRig(n.t, n.client)
	r.key = k
	return r
}

// TestWhoWaitedForTooLongIsNotToldOfWhatWasDeleted: the wait has shown that what this node holds
// is not in Redis any more.
func TestWhoWaitedForTooLongIsNotToldOfWhatWasDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		tk := listensTo(db)
		n := newNode(t, b, db, func(p *Policy) { p.WaitTimeout = 2 * time.Second })
		other := newNode(t, b, db)
		n.get(k)
		must(t, other.delete(k))
		time.Sleep(time.Second)
		resume := db.pause()
		slow := other.goGet(k)
		synctest.Wait()
		db.edit(func() { db.stop = nil })
		g := n.get(k)
		equal(t, "took", g.took, 2*time.Second)
		equal(t, "source", g.Source, Loaded)
		tk.told(t, 2, tale{})
		resume()
		slow.wait()
	})
}

// commitSizes are the sizes of the arguments of the commits that n has sent.
func (n *testNode) commitSizes() func() []int {
	var mu sync.Mutex
	var sizes []int
	n.faults.Delay(func(c redis.Cmder) bool {
		if !redistest.Script(scripts.commit)(c) {
			return false
		}
		size := 0
		for _, a := range c.Args() {
			size += len(fmt.Sprintf("%s", a))
		}
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, size)
		return false
	}, 0)
	return func() []int {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(sizes)
	}
}

// sentWhole checks that of two commits only the first has sent the payload.
func sentWhole(t *testing.T, sizes []int, payload string) {
	t.Helper()
	equal(t, "commits", len(sizes), 2)
	between(t, "size of the first", sizes[0], len(payload), len(payload)+1<<10)
	between(t, "size of the second", sizes[1], 1, 1<<10)
}

func TestNotModifiedBeginsTheWindowsAnewAndSendsNoPayload(t *testing.T) {
	for situation, tc := range replacements {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				large := strings.Repeat("v", 100<<10)
				k, db := keyOf("k"), newDatabase(large)
				tk := listensTo(db)
				n, other := newNode(t, b, db, eager), newNode(t, b, db, eager)
				sizes := n.commitSizes()
				n.get(k)
				other.get(k)
				r := rigOf(t, b, k)
				first := r.entry()
				time.Sleep(tc.after)
				tk.say(notModified)
				tc.ask(n, k)
				synctest.Wait()
				sentWhole(t, sizes(), large)

				e, now := r.entry(), r.now()
				equal(t, "what stands there", e.Kind == KindValue && e.Codec == stringCodec && e.Payload == large, true)
				equal(t, "row", e.Row, firstRow)
				equal(t, "it is newer", e.Version > first.Version && e.Writer != first.Writer, true)
				after(t, "fresh", e.Fresh, now, time.Minute)
				after(t, "stale", e.Stale, now, 2*time.Minute)
				after(t, "if error", e.IfError, now, time.Minute+time.Hour)
				equal(t, "lifetime", r.life(), time.Minute+time.Hour)

				time.Sleep(time.Second) // the other's belief
				g := n.get(k)
				equal(t, "state", g.State, Fresh)
				equal(t, "version", g.Copy.Meta().Version, e.Version)
				g = other.get(k)
				equal(t, "value on the other node", g.value() == large, true)
				equal(t, "state on the other node", g.State, Fresh)
				equal(t, "version on the other node", g.Copy.Meta().Version, e.Version)
				equal(t, "loads", db.count(), 2)
			})
		})
	}
}

func TestNotModifiedAnswersWhoWaitedWithTheValue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		tk := listensTo(db)
		n, other := newNode(t, b, db), newNode(t, b, db)
		n.get(k)
		time.Sleep(10 * time.Minute)
		db.edit(func() { db.value, db.takes = "v2", 500*time.Millisecond })
		tk.say(notModified)
		var calls []call
		for range 10 {
			calls = append(calls, n.goGet(k), other.goGet(k))
		}
		for _, c := range calls {
			g := c.wait()
			equal(t, "value", g.value(), "v1")
			equal(t, "state", g.State, Fresh)
			equal(t, "took", g.took, 500*time.Millisecond)
		}
		equal(t, "loads", db.count(), 2)
	})
}

func TestNotModifiedOnARealServer(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("v", 100<<10)
	k, db := keyOf(redistest.Prefix(t)), newDatabase(large)
	tk := listensTo(db)
	s := redistest.Shared(t)
	n, other := nodeOn(t, s.Client(t), db, patient), nodeOn(t, s.Client(t), db, patient)
	n.warm()
	sizes := n.commitSizes()
	n.get(k)
	first := rigOfNode(n, k).entry()
	tk.say(notModified)
	equal(t, "value", n.goRefresh(k).wait().value() == large, true)
	sentWhole(t, sizes(), large)
	e := rigOfNode(n, k).entry()
	equal(t, "it is newer", e.Version > first.Version, true)
	equal(t, "value elsewhere", other.get(k).value() == large, true)
	equal(t, "loads", db.count(), 2)
}

func TestWithMemoryFullNotModifiedIsStored(t *testing.T) {
	r, fill := full(t)
	db := newDatabase("v1")
	tk := listensTo(db)
	n := nodeOn(t, r.c, db, patient)
	n.get(r.key)
	version := r.entry().Version
	fill()
	tk.say(notModified)
	g := n.goRefresh(r.key).wait()
	equal(t, "value", g.value(), "v1")
	equal(t, "commits", n.Counts.Commits.Load(), 2)
	equal(t, "it is newer", r.entry().Version > version, true)
	equal(t, "payload", r.entry().Payload, "v1")
}

func TestNotModifiedWithoutRedisBeginsTheWindowsAnew(t *testing.T) {
	for situation, tc := range replacements {
		if strings.Contains(situation, "expired") {
			continue
		}
		t.Run(situation, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, db := keyOf("k"), newDatabase("v1")
				tk := listensTo(db)
				n := lonelyNode(t, db, eager)
				n.get(k)
				time.Sleep(tc.after)
				tk.say(notModified)
				db.set("v2")
				tc.ask(n, k)
				synctest.Wait()
				equal(t, "loads", db.count(), 2)
				g := n.get(k)
				equal(t, "value", g.value(), "v1")
				equal(t, "state", g.State, Fresh)
				equal(t, "fresh for", time.Duration(g.Copy.Meta().Fresh-n.clock.Now()), time.Minute)
			})
		})
	}
}

// TestNotModifiedWithoutRedisKeepsTheRowVersion: a load that says nothing of it has not changed the row.
func TestNotModifiedWithoutRedisKeepsTheRowVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, db := keyOf("k"), newDatabase("v1")
		tk := listensTo(db)
		n := lonelyNode(t, db)
		n.get(k)
		tk.say(notModified)
		for loads := range 3 {
			time.Sleep(10 * time.Minute)
			n.get(k)
			tk.told(t, 2+loads, tale{"v1", firstRow, 0, 10 * time.Minute})
		}
	})
}

// TestNotModifiedOfWhatRedisDoesNotHoldIsStoredWhole: the value was loaded while Redis was away,
// so there is no payload there that could be kept.
func TestNotModifiedOfWhatRedisDoesNotHoldIsStoredWhole(t *testing.T) {
	for situation, between := range map[string]func(n *testNode, k Key){
		"nothing is there": func(n *testNode, k Key) {},
		"a failure is there": func(n *testNode, k Key) {
			db := n.shelf.db
			db.edit(func() { db.err = errRoute })
			n.goFresh(k).wait()
			db.edit(func() { db.err = nil })
			equal(n.t, "kind", rigOfNode(n, k).entry().Kind, KindFailed)
			time.Sleep(600 * time.Millisecond)
		},
	} {
		t.Run(situation, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				tk := listensTo(db)
				n, other := newNode(t, b, db), newNode(t, b, db)
				away := n.faults.Fail(redistest.Any, nil)
				n.get(k)
				away.Clear()
				time.Sleep(time.Minute + 5*time.Second) // and the breaker has noticed
				n.get(keyOf("another key"))
				tk.say(notModified)
				between(n, k)
				n.goFresh(k).wait()
				e := rigOf(t, b, k).entry()
				equal(t, "codec", string(e.Codec), string(stringCodec))
				equal(t, "payload", e.Payload, "v1")
				loads := db.count()
				g := other.get(k)
				equal(t, "value elsewhere", g.value(), "v1")
				equal(t, "source elsewhere", g.Source, Remote)
				equal(t, "loads", db.count(), loads)
			})
		})
	}
}

func TestNotModifiedOfWhatWasDeletedMeanwhileIsKeptNowhere(t *testing.T) {
	for _, where := range []string{"here", "elsewhere"} {
		t.Run(where, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				tk := listensTo(db)
				n, other := newNode(t, b, db), newNode(t, b, db)
				n.get(k)
				time.Sleep(10 * time.Minute)
				tk.say(notModified)
				resume := db.pause()
				waiter := n.goFresh(k)
				synctest.Wait()
				if where == "here" {
					must(t, n.delete(k))
				} else {
					must(t, other.delete(k))
				}
				kept := len(n.shelf.history)
				resume()
				equal(t, "value of who waited", waiter.now().value(), "v1")
				equal(t, "refused", n.Counts.Refused.Load(), 1)
				equal(t, "what stands there", rigOf(t, b, k).raw(), "")
				equal(t, "values kept since", len(n.shelf.history)-kept, 0)
				time.Sleep(2 * time.Second)
				n.get(k)
				tk.told(t, 3, tale{})
			})
		})
	}
}

// The commit is sent again, and what was on its way may arrive after that.
func TestNotModifiedOfUnknownFateIsFinishedBehindTheAnswer(t *testing.T) {
	for name, fault := range map[string]func(*testNode) *redistest.Rule{
		"the answer was lost": func(n *testNode) *redistest.Rule { return n.faults.LoseReply(redistest.Script(scripts.commit)) },
		"it came late":        func(n *testNode) *redistest.Rule { return n.faults.Late(redistest.Script(scripts.commit)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				tk := listensTo(db)
				n, other := newNode(t, b, db), newNode(t, b, db)
				n.get(k)
				time.Sleep(10 * time.Minute)
				tk.say(notModified)
				rule := fault(n).Times(1)
				equal(t, "value", n.get(k).value(), "v1")
				time.Sleep(2 * time.Second)
				e := rigOf(t, b, k).entry()
				equal(t, "payload", e.Payload, "v1")
				before := rigOf(t, b, k).raw()
				rule.Release(t.Context())
				equal(t, "what stands there", rigOf(t, b, k).raw(), before)
				equal(t, "state", other.get(k).State, Fresh)
				equal(t, "loads", db.count(), 2)
			})
		})
	}
}

// keepArgs are a commit's arguments that keep the payload.
func (r *rig) keepArgs(name string, start Micros, s storing) []any {
	args := r.commitArgs(name, start, "", s)
	args[8] = boolText(true)
	return args
}

func (r *rig) keep(name string, start Micros, s storing) reply {
	r.t.Helper()
	return r.do(scripts.commit, r.keepArgs(name, start, s)...)
}

// again leases what is fresh.
func (r *rig) again(name string) Micros {
	r.t.Helper()
	r.tick()
	answer := r.acquire(name, asking{bar: farthest})
	equal(r.t, "status", answer.Status, statusLeased)
	return answer.Entry.Start
}

func TestAKeepingCommitChangesTheHeaderAlone(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, value := range []string{"", "v", "%s\r\n\x00\xff", strings.Repeat("x", 1<<20)} {
			r.delete(0)
			r.store("A", value, storing{row: 7, fresh: time.Second, stale: time.Second, ifError: time.Minute, cost: 5 * time.Millisecond})
			start := r.again("B")
			answer := r.keep("B", start, storing{fresh: time.Minute, stale: 2 * time.Minute, ifError: time.Hour, cost: 9 * time.Millisecond})
			equal(r.t, "status", answer.Status, statusCommitted)
			e := r.entry()
			equal(r.t, "header in the answer", answer.Entry.Header, e.Header)
			equal(r.t, "the payload stays", e.Payload == value, true)
			after(r.t, "fresh", e.Fresh, answer.Now, time.Minute)
			after(r.t, "stale", e.Stale, answer.Now, 2*time.Minute)
			after(r.t, "if error", e.IfError, answer.Now, time.Hour)
			equal(r.t, "the rest", e.Header, Header{Kind: KindValue, Codec: stringCodec, Compression: '-', Identity: Identity{start, token("B")},
				Row: 7, Hash: r.key.Hash, Cost: 9 * time.Millisecond, Fresh: e.Fresh, Stale: e.Stale, IfError: e.IfError, Body: len(value)})
			between(r.t, "lifetime", r.life(), time.Hour-time.Minute, time.Hour)
		}
	})
}

func TestAKeepingCommitMayShortenTheLifetime(t *testing.T) {
	passing(t, func(r *rig) {
		r.store("A", "v1", storing{})
		r.keep("B", r.again("B"), storing{fresh: time.Second, stale: time.Second, ifError: 2 * time.Second})
		time.Sleep(2*time.Second - time.Millisecond)
		equal(t, "payload", r.entry().Payload, "v1")
		time.Sleep(time.Millisecond)
		r.gone()
	})
}

func TestAKeepingCommitLeavesCodecAndCompressionToThePayload(t *testing.T) {
	onServers(t, func(r *rig) {
		h := r.leased(r.valued(0, time.Minute, time.Hour), "A", time.Minute)
		h.Codec, h.Compression, h.Failures, h.RetryAfter = 'q', 'z', 5, r.in(-time.Second)
		r.put(h, "v1")
		equal(r.t, "status", r.keep("A", r.entry().Start, storing{}).Status, statusCommitted)
		e := r.entry()
		equal(r.t, "codec and compression", string([]byte{e.Codec, e.Compression}), "qz")
		equal(r.t, "payload", e.Payload, "v1")
		equal(r.t, "failures", e.Failures, 0)
		equal(r.t, "retry after", e.RetryAfter, 0)
		equal(r.t, "token", e.Token, "")
	})
}

func TestARepeatedKeepingCommitChangesNothing(t *testing.T) {
	onServers(t, func(r *rig) {
		r.store("A", "v1", storing{row: 7})
		start := r.again("B")
		args := r.keepArgs("B", start, storing{})
		first := r.do(scripts.commit, args...)
		before := r.raw()
		r.tick()
		second := r.do(scripts.commit, args...)
		equal(r.t, "status", second.Status, statusCommitted)
		equal(r.t, "header in the answer", second.Entry.Header, first.Entry.Header)
		equal(r.t, "what stands there", r.raw(), before)
		r.again("C") // a lease is no reason either
		before = r.raw()
		equal(r.t, "status", r.do(scripts.commit, args...).Status, statusCommitted)
		equal(r.t, "what stands there", r.raw(), before)
	})
}

func TestAKeepingCommitIsRefusedAfterAnythingThatRevokesItsLease(t *testing.T) {
	onServers(t, func(r *rig) {
		for situation, revoke := range map[string]func(*rig){
			"delete":            func(r *rig) { r.delete(0) },
			"delete, hold-down": func(r *rig) { r.delete(time.Minute) },
			"expire":            func(r *rig) { r.expire(0) },
			"seize":             func(r *rig) { r.seize("S", seizing{}) },
			"plain DEL":         func(r *rig) { r.remove() },
			"another's commit":  func(r *rig) { r.release("A", 0); r.commit("B", r.again("B"), "v2", storing{}) },
			"a new lease": func(r *rig) {
				r.release("A", 0)
				r.again("B")
			},
		} {
			r.remove()
			r.store("W", "v1", storing{row: 7})
			start := r.again("A")
			revoke(r)
			before := r.raw()
			equal(r.t, situation+": status", r.keep("A", start, storing{}).Status, statusRefused)
			equal(r.t, situation+": what stands there", r.raw(), before)
		}
	})
}

// Nothing that stands under a key but a value has a payload that could stay.
func TestAKeepingCommitMakesNoValueOfWhatIsNone(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, kind := range []Kind{KindLease, KindFailed, KindNotFound, KindPass} {
			h := r.leased(Header{Kind: kind, Failures: 1}, "A", time.Minute)
			r.put(h, "")
			if answer := r.keep("A", r.entry().Start, storing{}); answer.Status == statusCommitted {
				r.t.Errorf("kind %c became %+v", kind, r.entry())
			}
		}
	})
}

func TestAKeepingCommitComparesRowVersionsAsAnyDoes(t *testing.T) {
	onServers(t, func(r *rig) {
		for _, tc := range []struct {
			there, row, after uint64
			want              Status
		}{
			{7, 6, 7, statusOlder}, {7, 7, 7, statusCommitted}, {7, 8, 8, statusCommitted}, {7, 0, 7, statusCommitted},
			{0, 1, 1, statusCommitted}, {math.MaxUint64, 1 << 63, math.MaxUint64, statusOlder},
		} {
			h := r.leased(r.valued(0, time.Minute, time.Hour), "A", time.Minute)
			h.Row = tc.there
			r.put(h, "v1")
			before := r.raw()
			equal(r.t, "status", r.keep("A", r.entry().Start, storing{row: tc.row}).Status, tc.want)
			equal(r.t, "row", r.entry().Row, tc.after)
			equal(r.t, "payload", r.entry().Payload, "v1")
			if tc.want == statusOlder {
				equal(r.t, "changed", differing(before, r.raw()), "[retry failures token start until]")
			}
		}
	})
}

func TestAKeepingCommitsWindowsEndWithTheHoldDown(t *testing.T) {
	onServers(t, func(r *rig) {
		h := r.leased(r.valued(0, time.Minute, time.Hour), "A", time.Minute)
		h.HoldDown = r.in(90 * time.Second)
		r.put(h, "v1")
		r.keep("A", r.entry().Start, storing{})
		e := r.entry()
		equal(r.t, "if error", e.IfError, h.HoldDown)
		equal(r.t, "hold-down", e.HoldDown, h.HoldDown)
		between(r.t, "lifetime", r.life(), 60*time.Second, 90*time.Second)
	})
}

func TestAKeepingCommitWakesWhoWaits(t *testing.T) {
	onServers(t, func(r *rig) {
		r.listen()
		r.put(r.valued(0, time.Minute, time.Hour), "v1")
		r.keep("A", r.flagged("A"), storing{})
		equal(r.t, "wake-ups", r.woken(), 1)
	})
}

func TestWithMemoryFullAKeepingCommitGoesOn(t *testing.T) {
	r, fill := full(t)
	r.put(r.valued(0, time.Minute, time.Hour), "v1")
	fill()
	equal(t, "status", r.keep("A", r.lease("A"), storing{}).Status, statusCommitted)
	equal(t, "payload", r.entry().Payload, "v1")
}

func TestALoadsOwnFreshTimeMovesTheWindows(t *testing.T) {
	for _, tc := range []struct{ ttl, want time.Duration }{
		{0, time.Minute},
		{time.Millisecond, time.Millisecond},
		{10 * time.Second, 10 * time.Second},
		{year, year},
		{year + time.Millisecond, year},
		{math.MaxInt64, year},
	} {
		for name, says := range map[string]func(Copy, *Outcome){
			"a value":      func(_ Copy, o *Outcome) { o.TTL = tc.ttl },
			"not modified": func(base Copy, o *Outcome) { notModified(base, o); o.TTL = tc.ttl },
		} {
			t.Run(fmt.Sprint(name, " of ", tc.ttl), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
					k, db := keyOf("k"), newDatabase("v1")
					tk := listensTo(db)
					n := newNode(t, b, db)
					n.get(k)
					tk.say(says)
					n.goRefresh(k).wait()
					e, now := rigOf(t, b, k).entry(), rigOf(t, b, k).now()
					after(t, "fresh", e.Fresh, now, tc.want)
					after(t, "stale", e.Stale, now, tc.want+time.Minute)
					after(t, "if error", e.IfError, now, tc.want+time.Hour)
					equal(t, "lifetime", rigOf(t, b, k).life(), tc.want+time.Hour)
				})
			})
		}
	}
}

func TestWithoutRedisALoadsOwnFreshTimeMovesTheWindows(t *testing.T) {
	for _, tc := range []struct{ ttl, want time.Duration }{{0, time.Minute}, {10 * time.Second, 10 * time.Second}, {math.MaxInt64, year}} {
		synctest.Test(t, func(t *testing.T) {
			k, db := keyOf("k"), newDatabase("v1")
			listensTo(db).say(func(_ Copy, o *Outcome) { o.TTL = tc.ttl })
			n := lonelyNode(t, db)
			n.get(k)
			m, now := n.shelf.Lookup(k).Meta(), n.clock.Now()
			equal(t, "fresh", time.Duration(m.Fresh-now), tc.want)
			equal(t, "stale", time.Duration(m.Stale-now), tc.want+time.Minute)
			equal(t, "if error", time.Duration(m.IfError-now), tc.want+time.Hour)
		})
	}
}

func TestAnOwnFreshTimeIsJitteredAndThatOfNotFoundIsNot(t *testing.T) {
	p := Policy{TTL: time.Hour, Jitter: 0.5, Stale: time.Minute, IfError: time.Hour, NegativeTTL: time.Second}
	drawn := map[time.Duration]bool{}
	for range 100 {
		fresh, stale, ifError := p.windows(KindValue, 10*time.Second)
		between(t, "fresh", fresh, 5*time.Second, 10*time.Second)
		equal(t, "stale", stale, fresh+time.Minute)
		equal(t, "if error", ifError, fresh+time.Hour)
		drawn[fresh] = true
		fresh, _, _ = p.windows(KindValue, math.MaxInt64)
		between(t, "the longest", fresh, year/2, year)
		fresh, stale, ifError = p.windows(KindNotFound, 10*time.Second)
		equal(t, "not found", [3]time.Duration{fresh, stale, ifError}, [3]time.Duration{10 * time.Second, 10 * time.Second, 10 * time.Second})
	}
	if len(drawn) < 50 {
		t.Errorf("a hundred draws gave %d fresh times", len(drawn))
	}
	fresh, _, _ := p.windows(KindNotFound, 0)
	equal(t, "not found without its own", fresh, time.Second)
}

// TestAnOlderRowIsKeptNowhere: a replica that lags behind has answered the refresh.
func TestAnOlderRowIsKeptNowhere(t *testing.T) {
	for name, says := range map[string]func(Copy, *Outcome){
		"a value":      func(_ Copy, o *Outcome) { o.Row = firstRow - 1 },
		"not modified": func(base Copy, o *Outcome) { notModified(base, o); o.Row = firstRow - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				tk := listensTo(db)
				n, other := newNode(t, b, db), newNode(t, b, db)
				n.get(k)
				before := rigOf(t, b, k).entry()
				time.Sleep(10 * time.Minute)
				tk.say(says)
				db.edit(func() { db.value, db.takes = "v0", 100*time.Millisecond })
				calls := []call{n.goGet(k), n.goGet(k)}
				for _, c := range calls { // what is at hand is newer than what came
					g := c.wait()
					g.brings(t, "v1", IfError, 100*time.Millisecond)
					equal(t, "why", g.Err, errOlderRow)
				}
				synctest.Wait()
				e := rigOf(t, b, k).entry()
				equal(t, "identity", e.Identity, before.Identity)
				equal(t, "fresh", e.Fresh, before.Fresh)
				equal(t, "payload", e.Payload, "v1")
				equal(t, "lease", e.Token, "")
				equal(t, "the node has kept it", n.everKept("v0"), false)
				equal(t, "refused", n.Counts.Refused.Load(), 1)
				db.edit(func() { db.err, db.takes = errRoute, 0 })
				for _, n := range []*testNode{n, other} {
					equal(t, "value where the next load fails", n.get(k).value(), "v1")
				}
			})
		})
	}
}

func TestAnEqualOrNewerRowIsStored(t *testing.T) {
	for _, row := range []uint64{0, firstRow, firstRow + 1, math.MaxUint64} {
		inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
			k, db := keyOf("k"), newDatabase("v1")
			tk := listensTo(db)
			n, other := newNode(t, b, db), newNode(t, b, db)
			n.get(k)
			time.Sleep(2 * time.Minute)
			db.set("v2")
			tk.say(func(_ Copy, o *Outcome) { o.Row = row })
			equal(t, "value", n.get(k).value(), "v2")
			equal(t, "value elsewhere", other.get(k).value(), "v2")
			equal(t, "row", rigOf(t, b, k).entry().Row, max(row, firstRow))
			time.Sleep(10 * time.Minute)
			other.get(k)
			tk.mu.Lock()
			defer tk.mu.Unlock()
			equal(t, "row that the next load is told", tk.tales[2].row, max(row, firstRow))
		})
	}
}

// TestWithoutRedisAnOlderRowIsKeptNowhere: the entry is the node's own copy.
func TestWithoutRedisAnOlderRowIsKeptNowhere(t *testing.T) {
	for _, tc := range []struct {
		row  uint64
		want string
	}{{firstRow - 1, "v1"}, {firstRow, "v2"}, {firstRow + 1, "v2"}} {
		t.Run(fmt.Sprint("row ", tc.row), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, db := keyOf("k"), newDatabase("v1")
				tk := listensTo(db)
				n := lonelyNode(t, db)
				n.get(k)
				time.Sleep(10 * time.Minute)
				db.set("v2")
				tk.say(func(_ Copy, o *Outcome) { o.Row = tc.row })
				equal(t, "value of who waited", n.get(k).value(), tc.want)
				equal(t, "value that is kept", n.kept(k), tc.want)
			})
		})
	}
}

// refusals are the ways in which a load's value may not be stored.
var refusals = map[string]struct {
	value string
	says  func(Copy, *Outcome)
}{
	"do not store":               {"v2", func(_ Copy, o *Outcome) { o.NoStore = true }},
	"a fresh time below zero":    {"v2", func(_ Copy, o *Outcome) { o.TTL = -1 }},
	"not modified, do not store": {"v1", func(base Copy, o *Outcome) { notModified(base, o); o.NoStore = true }},
	"too large":                  {strings.Repeat("v", 1001), nil},
	"not encodable":              {unencodable, nil},
}

func small(p *Policy) { p.MaxValueBytes = 1000 }

func TestWhatMayNotBeStoredIsGivenToAllWhoWaitAndDropsTheOldValue(t *testing.T) {
	for name, tc := range refusals {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				k, db := keyOf("k"), newDatabase("v1")
				tk := listensTo(db)
				n, other := newNode(t, b, db, small), newNode(t, b, db, small)
				n.get(k)
				other.get(k)
				time.Sleep(10 * time.Minute)
				tk.say(tc.says)
				db.edit(func() { db.value, db.takes = tc.value, 200*time.Millisecond })
				var calls []call
				for range 20 {
					calls = append(calls, n.goGet(k))
				}
				for _, c := range calls {
					g := c.wait()
					equal(t, "value", g.value(), tc.value)
					equal(t, "state", g.State, Fresh)
					equal(t, "source", g.Source, Loaded)
					equal(t, "took", g.took, 200*time.Millisecond)
				}
				equal(t, "loads", db.count(), 2)
				equal(t, "counted", n.Counts.Unstorable.Load(), 1)
				e, now := rigOf(t, b, k).entry(), rigOf(t, b, k).now()
				equal(t, "kind", e.Kind, KindPass)
				equal(t, "what follows the header", e.Payload+e.Message, "")
				equal(t, "row", e.Row, firstRow)
				after(t, "until", e.Fresh, now, time.Second)
				equal(t, "lifetime", rigOf(t, b, k).life(), time.Second)
				equal(t, "what the node keeps", n.kept(k), "")

				db.edit(func() { db.value, db.err, db.takes = "", errRoute, 0 })
				equal(t, "error here", errors.Is(n.get(k).err, errRoute), true) // not the old value
				equal(t, "error elsewhere", errors.Is(other.get(k).err, errRoute), true)
				time.Sleep(time.Second)
				equal(t, "what is left of it", rigOf(t, b, k).raw(), "")
			})
		})
	}
}

func TestARefreshInTheBackgroundThatMayNotBeStoredDropsTheStaleValueEverywhere(t *testing.T) {
	for name, tc := range refusals {
		for _, early := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, early: %v", name, early), func(t *testing.T) {
				inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
					k, db := keyOf("k"), newDatabase("v1")
					tk := listensTo(db)
					n, other := newNode(t, b, db, small, eager), newNode(t, b, db, small)
					n.get(k)
					time.Sleep(map[bool]time.Duration{false: 59700 * time.Millisecond, true: 55 * time.Second}[early])
					other.get(k) // and believes it for a second
					time.Sleep(500 * time.Millisecond)
					tk.say(tc.says)
					db.set(tc.value)
					equal(t, "value meanwhile", n.get(k).value(), "v1")
					synctest.Wait()
					equal(t, "loads", db.count(), 2)
					equal(t, "kind", rigOf(t, b, k).entry().Kind, KindPass)
					equal(t, "what the node keeps", n.kept(k), "")
					equal(t, "value elsewhere, which is believed", other.get(k).value(), "v1")
					time.Sleep(600 * time.Millisecond)
					equal(t, "value elsewhere", other.get(k).value(), tc.value)
					equal(t, "loads", db.count(), 3)
				})
			})
		}
	}
}

func TestWithoutRedisWhatMayNotBeStoredDropsTheOldValueToo(t *testing.T) {
	for name, tc := range refusals {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k, db := keyOf("k"), newDatabase("v1")
				tk := listensTo(db)
				n := lonelyNode(t, db, small)
				n.get(k)
				time.Sleep(10 * time.Minute)
				tk.say(tc.says)
				db.edit(func() { db.value, db.takes = tc.value, 200*time.Millisecond })
				var calls []call
				for range 20 {
					calls = append(calls, n.goGet(k))
				}
				for _, c := range calls {
					equal(t, "value", c.wait().value(), tc.value)
				}
				equal(t, "loads", db.count(), 2)
				equal(t, "what the node keeps", n.kept(k), "")
				db.edit(func() { db.err, db.takes = errRoute, 0 })
				equal(t, "error", errors.Is(n.get(k).err, errRoute), true)
			})
		})
	}
}

func TestNotFoundThatMayNotBeStoredIsAnsweredAndPassed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("")
		db.err = loader.ErrNotFound
		n := newNode(t, b, db, func(p *Policy) { p.NegativeTTL = 0 })
		equal(t, "value", n.get(k).value(), "not found")
		equal(t, "kind", rigOf(t, b, k).entry().Kind, KindPass)
		equal(t, "value", n.get(k).value(), "not found")
		equal(t, "loads", db.count(), 2)
	})
}

// TestNodesLoadWhatMayNotBeStoredBesideEachOther: the first node holds the lease, and the others
// wait for what will not come. When they know, all load at once, one for each node.
func TestNodesLoadWhatMayNotBeStoredBesideEachOther(t *testing.T) {
	for name, tc := range refusals {
		if name == "not modified, do not store" {
			continue // there is nothing before
		}
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
				const takes = 300 * time.Millisecond
				k, db := keyOf("k"), newDatabase(tc.value)
				listensTo(db).say(tc.says)
				db.takes = takes
				var nodes []*testNode
				for range 5 {
					nodes = append(nodes, newNode(t, b, db, small))
				}
				first := nodes[0].goGet(k)
				synctest.Wait()
				round := func(nodes []*testNode, took time.Duration) {
					t.Helper()
					var calls []call
					for _, n := range nodes {
						for range 10 {
							calls = append(calls, n.goGet(k))
						}
					}
					for _, c := range calls {
						g := c.wait()
						equal(t, "value", g.value(), tc.value)
						equal(t, "took", g.took, took)
					}
				}
				round(nodes[1:], 2*takes)
				equal(t, "took on the first node", first.wait().took, takes)
				equal(t, "loads", db.count(), 5)
				equal(t, "most at once", db.most, 4)
				round(nodes, takes) // within the second
				equal(t, "loads", db.count(), 10)
				equal(t, "most at once", db.most, 5)
				equal(t, "leases", rigOf(t, b, k).entry().Token, "")
				time.Sleep(time.Second)
				n := nodes[0]
				n.goGet(k)
				synctest.Wait()
				equal(t, "after the second there is a lease", rigOf(t, b, k).entry().Token != "", true)
				time.Sleep(takes)
			})
		})
	}
}

func TestLoadsBesideEachOtherKeepWithinTheBulkhead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		db := newDatabase("v1")
		listensTo(db).say(refusals["do not store"].says)
		n := newNode(t, b, db, func(p *Policy) { p.MaxLoads = 2 })
		keys := []Key{keyOf("a"), keyOf("b"), keyOf("c"), keyOf("d")}
		for _, k := range keys {
			n.get(k)
			equal(t, "kind", rigOf(t, b, k).entry().Kind, KindPass)
		}
		db.edit(func() { db.takes, db.most = 100*time.Millisecond, 0 })
		var calls []call
		for _, k := range keys {
			calls = append(calls, n.goGet(k), n.goGet(k))
		}
		latest := time.Duration(0)
		for _, c := range calls {
			g := c.wait()
			equal(t, "value", g.value(), "v1")
			latest = max(latest, g.took)
		}
		equal(t, "loads", db.count(), 8)
		equal(t, "most at once", db.most, 2)
		equal(t, "the last took", latest, 200*time.Millisecond)
	})
}

// TestWhatCanBeStoredAgainIs: by the first load under a lease; one beside others is only kept.
func TestWhatCanBeStoredAgainIs(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		k, db := keyOf("k"), newDatabase("v1")
		tk := listensTo(db)
		tk.say(refusals["do not store"].says)
		n, other := newNode(t, b, db), newNode(t, b, db)
		n.get(k)
		tk.say(notModified)
		db.set("v2")
		equal(t, "value", n.get(k).value(), "v2")
		equal(t, "source of the next", n.get(k).Source, Local)
		equal(t, "kind", rigOf(t, b, k).entry().Kind, KindPass)
		time.Sleep(time.Second + time.Millisecond)
		db.set("v3") // which "not modified" says is v2
		got := n.get(k).value()
		e := rigOf(t, b, k).entry()
		equal(t, "kind", e.Kind, KindValue)
		equal(t, "codec", string(e.Codec), string(stringCodec))
		equal(t, "payload", e.Payload, got)
		equal(t, "value elsewhere", other.get(k).value(), got)
	})
}
