package linear

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

var seedFlag = flag.Uint64("linear.seed", 0, "of what happens to the nodes; 0 draws one")

func seed(t *testing.T) uint64 {
	s := *seedFlag
	if s == 0 {
		s = uint64(rand.Uint32())
	}
	t.Logf("to repeat what happens, though not when: -linear.seed=%d", s)
	return s
}

// plan is how many operations there must be at least, how long they may take, and what may happen.
func plan() (operations int, limit time.Duration, faults []fault) {
	if os.Getenv("LEVEE_SOAK") == "1" {
		return 200_000, 20 * time.Minute, append(usual, longGone)
	}
	return 5_000, time.Minute, usual
}

func TestNoReadIsOlderThanWhatItsNodeHadToKnow(t *testing.T) {
	operations, limit, faults := plan()
	f := startFleet(t, seed(t), "", faults)
	f.calm = 4 * recovery // else hardly a read would be held against what others wrote
	began := now()
	for len(f.history) < operations || now() < began+10*time.Second {
		f.disturb(time.Second)
		f.collect()
		if now() > began+limit {
			t.Fatalf("%d operations in %v, want %d", len(f.history), limit, operations)
		}
	}
	f.heal()
	rest(3 * time.Second) // all that is still wrong is to be seen
	v := f.check()
	f.report(v, now()-began)
	report(t, v.findings)
	if v.strict < v.reads/4 {
		t.Errorf("only %d of %d reads are held against what others wrote: that says little", v.strict, v.reads)
	}
}

func TestANodeThatBreaksThePromisesIsFound(t *testing.T) {
	for name, mutant := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, seed(t), name, mutant.faults)
			for began := now(); now() < began+90*time.Second; {
				f.disturb(time.Second)
				if v := f.check(); len(v.findings) > 0 {
					t.Logf("found after %v: %s", now()-began, v.findings[0])
					return
				}
			}
			t.Error("not found")
		})
	}
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
