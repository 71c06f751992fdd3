package main

import (
	"sync/atomic"
	"time"

	"github.com/levee-cache/levee/cache"
)

// Stats counts queries beside what the cache counts.
type Stats struct {
	Reads, Writes int64
	SlowestRead   time.Duration
	Cache         cache.Stats
}

// Stats returns the counters since the start.
func (s *Users) Stats() Stats {
	return Stats{
		Reads: s.reads.Load(), Writes: s.writes.Load(),
		SlowestRead: time.Duration(s.slowest.Load()),
		Cache:       s.cache.Stats(),
	}
}

// longest is the longest of the times it is told.
type longest struct{ atomic.Int64 }

func (l *longest) since(start time.Time) {
	took := int64(time.Since(start))
	for old := l.Load(); took > old && !l.CompareAndSwap(old, took); old = l.Load() {
	}
}
