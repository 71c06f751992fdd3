package main

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestEveryBucketHoldsExactlyWhatEndsAtItsUpperEnd(t *testing.T) {
	for i := range buckets {
		if got := bucket(upper(i)); got != i {
			t.Fatalf("bucket(upper(%d)) = %d", i, got)
		}
		if i+1 < buckets && bucket(upper(i)+1) != i+1 {
			t.Fatalf("bucket(upper(%d)+1) = %d", i, bucket(upper(i)+1))
		}
	}
}

func TestADurationOutOfRangeFallsIntoAnEndBucket(t *testing.T) {
	if got := bucket(-time.Second); got != 0 {
		t.Errorf("negative: bucket %d", got)
	}
	if got := bucket(24 * time.Hour); got != buckets-1 {
		t.Errorf("a day: bucket %d of %d", got, buckets)
	}
}

func TestQuantilesAreThoseOfTheSortedSamplesWithinOnePercent(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var r recording
	var samples []time.Duration
	for range 10_000 {
		d := time.Duration(rng.ExpFloat64() * float64(3*time.Millisecond))
		r.add(d, false)
		samples = append(samples, d)
	}
	slices.Sort(samples)
	for _, q := range []float64{0.001, 0.5, 0.99, 0.999, 1} {
		exact := samples[max(int(q*10_000)-1, 0)]
		got := r.quantile(q)
		if got < exact || float64(got) > float64(exact)*1.01 {
			t.Errorf("quantile %v: %v, the samples say %v", q, got, exact)
		}
	}
	if r.max != samples[len(samples)-1] {
		t.Errorf("max %v, want %v", r.max, samples[len(samples)-1])
	}
}

func TestAQuantileIsNeverAboveTheMaximum(t *testing.T) {
	var r recording
	r.add(1_000_001, false)
	if got := r.quantile(0.5); got != 1_000_001 {
		t.Errorf("got %v", got)
	}
}

func TestTheQuantileOfNothingIsZero(t *testing.T) {
	if got := new(recording).quantile(0.99); got != 0 {
		t.Errorf("got %v", got)
	}
}

func TestMergedRecordingsAreAsOne(t *testing.T) {
	var a, b, both recording
	for i := range 100 {
		d := time.Duration(i) * time.Millisecond
		both.add(d, i%4 == 0)
		if i%2 == 0 {
			a.add(d, i%4 == 0)
		} else {
			b.add(d, false)
		}
	}
	a.merge(&b)
	if a.reads.Load() != 100 || a.stale != 25 || a.max != both.max || a.count != both.count {
		t.Errorf("merged %d reads, %d stale, max %v", a.reads.Load(), a.stale, a.max)
	}
}

func TestLongerCountsReadsFromThatDurationOn(t *testing.T) {
	var r recording
	for _, ms := range []int{1, 49, 51, 60, 3000} {
		r.add(time.Duration(ms)*time.Millisecond, false)
	}
	if got := r.longer(50 * time.Millisecond); got != 3 {
		t.Errorf("%d, want 3", got)
	}
}
