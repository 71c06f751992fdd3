package rebuild

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// TestASetDoesNotKeepAsBelievedWhatWasReportedMeanwhile: while the answer to its commit is on its way, another program's
// DEL is reported.
func TestASetDoesNotKeepAsBelievedWhatWasReportedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := newDatabase("v2")
		b := redistest.Bubble(t)
		n := newNode(t, b, db, func(p *Policy) { p.LocalTTL = 30 * time.Second })
		k := keyOf("k")
		late := n.faults.HoldReply(redistest.Script(scripts.commit)).Times(1)
		set := make(chan error, 1)
		go func() { set <- n.set(k, "v1") }()
		must(t, late.Wait(t.Context()))
		synctest.Wait()
		report := n.policy.News.Topic + ":" + k.Text
		n.written([]string{report}) // the commit
		b.Mini().Del(k.Redis)
		n.written([]string{report})
		late.Release(t.Context())
		must(t, <-set)
		time.Sleep(10 * time.Second)
		equal(t, "what is served", n.get(k).value(), "v2")
	})
}

// TestWhatIsReportedOfAGenerationIsAskedFor: by the end of a tag that nobody tells of.
func TestWhatIsReportedOfAGenerationIsAskedFor(t *testing.T) {
	for what, silence := range map[string]int{"at once": 0, "after a silence": 2, "in vain": 100} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := newDatabase("v1")
				db.answer = red
				b := redistest.Bubble(t)
				n, other := newNode(t, b, db, func(p *Policy) { p.LocalTTL = time.Hour }), newNode(t, b, db)
				k := keyOf("k")
				time.Sleep(time.Second)
				equal(t, "loaded", n.get(k).value(), "v1")
				db.set("v2")
				must(t, other.EndTag(t.Context(), "red", false))
				n.faults.Fail(redistest.Contains("!:red"), nil).Times(silence)
				n.written([]string{n.generationKey("red"), n.generationKey("met by nobody")})
				time.Sleep(time.Second)
				n.faults.Clear()
				equal(t, "what is served", n.get(k).value(), "v2")
			})
		})
	}
}
