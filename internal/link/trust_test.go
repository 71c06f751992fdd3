package link

import (
	"sync"
	"testing"
	"time"
)

func TestNothingIsTrustedBeforeSomethingIsProven(t *testing.T) {
	var trust Trust
	equal(t, "trusts", trust.Trusts(0, 0), false)
	equal(t, "hears", trust.Hears(0), false)
	trust.raise(5)
	equal(t, "trusts above a floor alone", trust.Trusts(6, 6), false)
}

func TestTrustEndsAtTheFloorAndWithTheProof(t *testing.T) {
	const at = Instant(10 * time.Second)
	var trust Trust
	trust.raise(at)
	trust.prove(at)
	end := at.Add(800 * time.Millisecond)
	for _, tc := range []struct {
		situation  string
		since, now Instant
		want       bool
	}{
		{"asked for at the floor", at, at, true},
		{"asked for before the floor", at - 1, at, false},
		{"at the last moment of the proof", at, end - 1, true},
		{"when the proof has run out", at, end, false},
		{"after a pause of the process", at, at.Add(time.Hour), false},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			equal(t, "trusts", trust.Trusts(tc.since, tc.now), tc.want)
			equal(t, "hears", trust.Hears(tc.now), tc.now < end)
		})
	}
}

func TestFloorAndProofNeverFall(t *testing.T) {
	var trust Trust
	trust.raise(9)
	trust.raise(3)
	equal(t, "floor", trust.Floor(), 9)
	trust.prove(9)
	trust.prove(3)
	equal(t, "hears as long as the later proof", trust.Hears(Instant(9).Add(trustTime)-1), true)
}

// A gap raises the floor before the messages behind it extend the proof: whoever sees the new
// proof must see the new floor.
func TestAGapIsSeenNoLaterThanTheProofBehindIt(t *testing.T) {
	var trust Trust
	var writer sync.WaitGroup
	const rounds = 100_000
	trust.prove(0)
	writer.Go(func() {
		for i := range Instant(rounds) {
			trust.raise(i.Add(trustTime) + 1) // what was asked for before the next proof is in doubt
			trust.prove(i + 1)
		}
	})
	for !trust.Hears(Instant(rounds).Add(trustTime) - 1) {
		now := Instant(trust.until.Load()) // not heard yet by the proof that was just seen
		if trust.Trusts(now, now) {
			t.Fatalf("trusted at %d beyond a gap", now)
		}
	}
	writer.Wait()
}

func TestTrustCostsNoAllocation(t *testing.T) {
	var trust Trust
	trust.prove(1)
	equal(t, "allocations", testing.AllocsPerRun(100, func() { trust.Trusts(1, 2) }), 0)
}

func BenchmarkTrusts(b *testing.B) {
	var trust Trust
	trust.prove(1)
	for b.Loop() {
		if !trust.Trusts(1, 2) {
			b.Fatal("not trusted")
		}
	}
}
