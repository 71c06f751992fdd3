package main

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/levee-cache/levee/internal/redistest"
)

// The nodes of the fleet are this binary again, running the service's own main.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(redistest.Main(m, map[string]func(){"service": main}))
}

const (
	nodes          = 3
	clientsPerNode = 20
	keys           = 30 // two thirds of them are there from the start
	ttl            = 2 * time.Second
	shortestTTL    = ttl * 9 / 10    // TTLJitter's default
	staleUntil     = ttl + ttl/2     // with the service's StaleWhileRevalidate
	ifErrorUntil   = ttl + 10*ttl    // with its StaleIfError
	localTTL       = ttl             // its default
	toHear         = time.Second     // of what another node has invalidated
	toStore        = time.Second     // more than a commit takes
	recovery       = 3 * time.Second // until all nodes have found Redis again: two probes, the breaker's and go-redis' own
)

func TestAFleetServesNothingTooOldAndAsksTheDatabaseSeldom(t *testing.T) {
	steady, away, after := 10*time.Second, 3*time.Second, 3*time.Second
	if testing.Short() {
		steady, away, after = 2*time.Second, time.Second, time.Second/2
	}
	f := startFleet(t)
	w := startTraffic(t, f)

	w.goOn(time.Second) // processes begin slowly
	began := w.mark()
	w.goOn(steady)
	killed := w.mark()
	must(t, f.redis.Kill())
	w.goOn(away)
	must(t, f.redis.Restart())
	w.goOn(recovery)
	recovered := w.mark()
	w.goOn(after)
	ended := w.mark()
	f.stopInTurn()
	w.stop()

	calm, rough := killed.minus(began), ended.minus(killed)
	calm.report(t, "with Redis", calm.loadsAllowed()+calm.withoutRedis)
	rough.report(t, "without, and back", rough.loadsAllowed()+aloneLoads(recovered.at-killed.from))
	if int64(calm.answers) < 2*calm.loadsAllowed() {
		t.Errorf("%d answers say nothing where %d loads are allowed", calm.answers, calm.loadsAllowed())
	}
	if recovered.commits == ended.commits {
		t.Error("nothing was stored after Redis had come back")
	}

	report(t, w.failures)
	r := rules{others: toHear, foreign: localTTL, windows: staleUntil + ended.slowest + toStore, cutOff: w.cutOff}
	if ended.staleOnError > 0 {
		t.Logf("SLOW: %d answers were stale since a query took over a second", ended.staleOnError)
		r.windows = ifErrorUntil + ended.slowest + toStore
	}
	report(t, r.broken(w.answers[:ended.answers], w.changes))
	r.windows = ifErrorUntil + ended.slowest + toStore // stopInTurn holds up queries
	report(t, r.broken(w.answers[ended.answers:], w.changes))
	report(t, f.leftInRedis())
}

// aloneLoads is how many loads d without Redis may bring: each node refreshes its copies by itself.
func aloneLoads(d time.Duration) int64 {
	return nodes * keys * (1 + int64((d+localTTL-1)/localTTL))
}

// report fails the test with the first few findings.
func report(t *testing.T, findings []string) {
	t.Helper()
	for i, f := range findings {
		if i == 10 {
			t.Errorf("and %d more", len(findings)-i)
			break
		}
		t.Error(f)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
