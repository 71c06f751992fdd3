package rebuild

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/internal/redistest"
)

// red tags all that is loaded.
func red(_ Copy, _ time.Duration, o *Outcome) { o.Tags = []string{"red"} }

// TestAGenerationInUseLivesOn: to lose it would end all that carries it.
func TestAGenerationInUseLivesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase("v1")
		db.answer = red
		b := redistest.Bubble(t)
		n := newNode(t, b, db, func(p *Policy) { p.TTL, p.IfError = 100*time.Hour, 100*time.Hour })
		for range 60 {
			n.get(keyOf("k"))
			time.Sleep(9 * time.Hour)
			for _, g := range []string{n.generationKey(""), n.generationKey("red")} {
				if left := b.Mini().TTL(g); left < 200*time.Hour {
					t.Fatalf("%s has %v left, an entry may have 200 h", g, left)
				}
			}
		}
	})
}

// TestATagThatIsEvictedFromTheTableStaysGone: where it is not in the table, nobody tells it of its end.
func TestATagThatIsEvictedFromTheTableStaysGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase("v1")
		db.answer = red
		b := redistest.Bubble(t)
		n := newNode(t, b, db, func(p *Policy) { p.LocalTTL = 10 * time.Minute; p.TTL = time.Hour })
		k := keyOf("k")
		time.Sleep(time.Second)
		n.get(k)
		time.Sleep(n.policy.LocalTTL)
		late := n.faults.HoldReply(redistest.Contains(k.Redis)).Times(1) // the copy is verified
		go func() { n.get(k) }()
		must(t, late.Wait(t.Context()))
		synctest.Wait()
		for i := 0; n.met("red") != nil; i++ {
			n.tag(strconv.Itoa(i))
		}
		late.Release(t.Context())
		synctest.Wait()
		db.set("v2")
		time.Sleep(time.Second)
		must(t, n.EndTag(t.Context(), "red", false))
		time.Sleep(time.Minute)
		equal(t, "what is served after the end of the tag", n.get(k).value(), "v2")
	})
}

func TestEndsBeyondTheBoundAreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, redistest.Bubble(t), newDatabase("v1"), func(p *Policy) { p.RetryDeletes = time.Hour })
		n.faults.Fail(redistest.Any, nil)
		n.retries.ends = map[end]*retry{}
		for i := range mostRetries {
			n.retries.ends[end{tag: strconv.Itoa(i)}] = &retry{until: n.clock.Now().Add(time.Hour)}
		}
		for tag, lost := range map[string]int{"red": 1, "5": 0} { // the second waits already
			before := n.Counts.RetriesLost.Load()
			if n.EndTag(t.Context(), tag, false) == nil {
				t.Error("no error")
			}
			equal(t, "lost", n.Counts.RetriesLost.Load()-before, int64(lost))
		}
	})
}

// TestAClockThatSteppedBackCostsATaggedValueOneLoad: the number lies an hour ahead, but it has been there since the
// node first asked.
func TestAClockThatSteppedBackCostsATaggedValueOneLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase("v1")
		db.answer = red
		b := redistest.Bubble(t)
		n := newNode(t, b, db)
		number := string(appendNumber(nil, time.Now().Add(time.Hour).UnixMicro(), numberWidth))
		must(t, b.Mini().Set(n.tag("red").redis, number+" "+number+" 0"))
		time.Sleep(time.Second)
		for range 5 {
			equal(t, "value", n.get(keyOf("k")).value(), "v1")
			time.Sleep(2 * time.Second)
		}
		equal(t, "loads", db.count(), 2)
	})
}

// TestTheBoundOfAnInvalidationCountsValuesWithATTLOfTheirOwn that this node has met.
func TestTheBoundOfAnInvalidationCountsValuesWithATTLOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase("v1")
		db.answer = func(_ Copy, _ time.Duration, o *Outcome) { o.TTL = 10 * time.Hour }
		b := redistest.Bubble(t)
		n, other := newNode(t, b, db), newNode(t, b, db)
		k := keyOf("k")
		other.get(k)
		n.get(k)
		n.faults.Fail(redistest.Any, nil)
		i, ok := errors.AsType[*InvalidationError](n.delete(k))
		if !ok {
			t.Fatal("no InvalidationError")
		}
		db.set("v2")
		time.Sleep(i.Bound + time.Second)
		equal(t, "after the bound", other.get(k).value(), "v2")
	})
}

// TestACopyIsBelievedFromWhenItsGenerationsWereAskedFor: a Clear that nobody tells of comes after that, and before the
// copy is read.
func TestACopyIsBelievedFromWhenItsGenerationsWereAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase("v1")
		b := redistest.Bubble(t)
		n, other := newNode(t, b, db, func(p *Policy) { p.LocalTTL = 10 * time.Second }), newNode(t, b, db)
		k := keyOf("k")
		other.get(k)
		n.get(keyOf("another")) // asks
		time.Sleep(500 * time.Millisecond)
		must(t, other.Clear(t.Context()))
		cleared := time.Now()
		db.set("v2")
		time.Sleep(400 * time.Millisecond)
		equal(t, "what is read meanwhile", n.get(k).value(), "v1")
		time.Sleep(time.Until(cleared.Add(n.policy.LocalTTL)))
		equal(t, "what is served after LocalTTL", n.get(k).value(), "v2")
	})
}

// TestAMessageWithAnyNumberCostsNoLoad: it ends what it is about until Redis has been asked.
func TestAMessageWithAnyNumberCostsNoLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase("v1")
		db.answer = red
		n := newNode(t, redistest.Bubble(t), db)
		k := keyOf("k")
		time.Sleep(time.Second)
		n.get(k)
		for _, tag := range []string{"red", ""} {
			for _, number := range []int64{1, 1<<63 - 1, -1, 0} {
				n.heard(link.Message{Kind: hardMessage, Text: tag, Number: number})
				time.Sleep(time.Microsecond) // what is asked for in the very same instant says nothing
				for range 3 {
					equal(t, "value", n.get(k).value(), "v1")
					time.Sleep(10 * time.Millisecond)
				}
			}
		}
		equal(t, "loads", db.count(), 1)
	})
}

// TestAnAnswerAfterAStepBackOfTheClockCounts: a failover to a master whose clock is behind, and which has lost the number.
func TestAnAnswerAfterAStepBackOfTheClockCounts(t *testing.T) {
	g := newGeneration("g", "red", never)
	g.learn(generationReply{at: 5000, hard: 4000, soft: 4000, asked: 10, came: 12, changed: never})
	g.learn(generationReply{at: 4500, hard: 3000, soft: 3000, asked: 11, came: 13, changed: never}) // was asked for meanwhile
	equal(t, "number after an earlier state", g.hard.Load(), 4000)
	g.learn(generationReply{at: 2000, hard: 1000, soft: 1000, asked: 14, came: 15, changed: never})
	equal(t, "number after the step back", g.hard.Load(), 1000)
}
