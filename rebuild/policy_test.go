package rebuild

import (
	"fmt"
	"math"
	"testing"
	"time"
)

const year = 365 * 24 * time.Hour

// draws are what a random number in [0, 1) may be.
var draws = []float64{0, math.SmallestNonzeroFloat64, 0.25, 0.5, 0.999999, math.Nextafter(1, 0)}

func TestAJitteredTimeLiesInItsBand(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 2, time.Microsecond, time.Millisecond, time.Second, year} {
		for _, share := range []float64{0, 0.1, 0.5, 1} {
			for _, r := range draws {
				low := max(time.Duration((1-share)*float64(d))-1, 0)
				between(t, fmt.Sprintf("%v, jitter %v, draw %v", d, share, r), jittered(d, share, r), low, d)
			}
		}
	}
}

func TestAJitteredTimeIsNeverCutToNothing(t *testing.T) {
	for _, d := range []time.Duration{1, time.Microsecond, time.Millisecond, time.Hour} {
		equal(t, d.String(), jittered(d, 1, math.Nextafter(1, 0)), min(d, time.Millisecond))
	}
}

func TestJitterUsesItsWholeBand(t *testing.T) {
	equal(t, "longest", jittered(time.Minute, 0.1, 0), time.Minute)
	between(t, "shortest", jittered(time.Minute, 0.1, math.Nextafter(1, 0)), 54*time.Second, 54*time.Second+time.Microsecond)
}

func TestTheBackoffDoublesUpToTenTimesTheFirst(t *testing.T) {
	p := Policy{Backoff: 500 * time.Millisecond}
	for failures, longest := range map[int]time.Duration{
		1: 500 * time.Millisecond, 2: time.Second, 3: 2 * time.Second, 4: 4 * time.Second,
		5: 5 * time.Second, 6: 5 * time.Second, 9: 5 * time.Second, 10: 5 * time.Second, math.MaxInt: 5 * time.Second,
	} {
		equal(t, fmt.Sprint(failures, " failures, undisturbed"), p.pauseAfter(failures, 0), longest)
		for _, r := range draws {
			between(t, fmt.Sprint(failures, " failures"), p.pauseAfter(failures, r), longest*4/5-1, longest)
		}
	}
}

func TestABackoffOfAnyLengthIsPossible(t *testing.T) {
	for _, backoff := range []time.Duration{0, 1, time.Microsecond, year} {
		for failures := 1; failures < 300; failures++ {
			pause := Policy{Backoff: backoff}.pauseAfter(failures, 0.5)
			between(t, fmt.Sprintf("%d failures, back-off %v", failures, backoff), pause, backoff/2, 10*backoff)
		}
	}
}

func TestAPauseIsSpreadAroundItsLength(t *testing.T) {
	for _, d := range []time.Duration{0, 1, time.Millisecond, lastPause, year} {
		for _, r := range draws {
			between(t, fmt.Sprintf("%v, draw %v", d, r), spread(d, r), d/2, d/2+d)
		}
	}
}

func TestTheWindowsOfAnEntryFollowEachOther(t *testing.T) {
	p := Policy{TTL: time.Minute, Jitter: 0.1, Stale: 10 * time.Second, IfError: time.Hour, NegativeTTL: 5 * time.Second}
	for range 100 {
		fresh, stale, ifError := p.windows(KindValue, 0)
		between(t, "fresh", fresh, 54*time.Second, time.Minute)
		equal(t, "stale", stale-fresh, p.Stale)
		equal(t, "if error", ifError-fresh, p.IfError)
	}
	fresh, stale, ifError := p.windows(KindNotFound, 0)
	equal(t, "not found", [3]time.Duration{fresh, stale, ifError}, [3]time.Duration{p.NegativeTTL, p.NegativeTTL, p.NegativeTTL})
}

func TestALifetimeOnTheWireIsRoundedUp(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Second - 1: 1000, year: 31_536_000_000,
	} {
		equal(t, d.String(), millis(d), want)
	}
}

func TestARowVersionKeepsItsOrderAsText(t *testing.T) {
	rows := []uint64{0, 1, 15, 16, 255, 1 << 32, 1<<63 - 1, 1 << 63, math.MaxUint64}
	for i, row := range rows {
		equal(t, fmt.Sprintf("width of %d", row), len(rowText(row)), fields[fRow].width)
		if i > 0 && rowText(rows[i-1]) >= rowText(row) {
			t.Errorf("%d is not above %d: %q, %q", row, rows[i-1], rowText(row), rowText(rows[i-1]))
		}
	}
}
