package main

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// recording is what one caller has seen. Only that caller writes to it, so a read costs no lock; once all callers
// have ended, the recordings are merged.
type recording struct {
	reads  atomic.Int64 // also read by the progress line, while the caller runs
	stale  int64
	errors int64
	first  error // the first error, to show what went wrong
	max    time.Duration
	count  [buckets]uint32
}

// Latencies are kept in buckets that grow with the value: 128 to each doubling, so that a quantile is less than 0.8 % too high.
const (
	fine    = 7  // log2 of the buckets to a doubling
	widest  = 40 // log2 of the first duration that is only known to be longer, 18 minutes
	buckets = (widest - fine + 1) << fine
)

// bucket is the number of the bucket that holds d.
func bucket(d time.Duration) int {
	v := uint64(min(max(d, 0), 1<<widest-1))
	shift := max(bits.Len64(v)-fine-1, 0)
	return shift<<fine + int(v>>shift)
}

// upper is the longest duration that falls into bucket i.
func upper(i int) time.Duration {
	shift := max(i>>fine-1, 0)
	return time.Duration(i-shift<<fine+1)<<shift - 1
}

func (r *recording) add(d time.Duration, stale bool) {
	r.reads.Add(1)
	r.count[bucket(d)]++
	r.max = max(r.max, d)
	if stale {
		r.stale++
	}
}

func (r *recording) fail(err error) {
	r.errors++
	if r.first == nil {
		r.first = err
	}
}

func (r *recording) merge(other *recording) {
	r.reads.Add(other.reads.Load())
	r.stale += other.stale
	if other.first != nil && r.first == nil {
		r.first = other.first
	}
	r.errors += other.errors
	r.max = max(r.max, other.max)
	for i, n := range other.count {
		r.count[i] += n
	}
}

// quantile is the latency that a share q of the reads did not exceed (nearest rank, the bucket's upper end).
func (r *recording) quantile(q float64) time.Duration {
	rank := max(int64(math.Ceil(q*float64(r.reads.Load()))), 1)
	var seen int64
	for i, n := range r.count {
		if seen += int64(n); seen >= rank {
			return min(upper(i), r.max)
		}
	}
	return r.max
}

// longer counts the reads that took at least d, to the bucket exactly.
func (r *recording) longer(d time.Duration) (reads int64) {
	for _, n := range r.count[bucket(d):] {
		reads += int64(n)
	}
	return reads
}
