package main

import (
	"testing"
	"time"
)

// sample is what had been counted at some instant in a short time; a difference of two, what was
// between them.
type sample struct {
	from, at                                                                   time.Duration
	slowest                                                                    time.Duration
	answers                                                                    int
	invalidations, loads, writes, commits, withoutRedis, staleOnError, excused int64
}

// mark takes a sample of the whole fleet: of its counters, when the answers had been given.
func (w *traffic) mark() (s sample) {
	s.from = w.now()
	w.note(func() { s.answers = len(w.answers) })
	for _, n := range w.f.nodes {
		of, err := w.f.stats(n)
		must(w.f.t, err)
		s.loads += of.Reads
		s.writes += of.Writes
		s.commits += of.Cache.Commits
		s.withoutRedis += of.Cache.RedisErrors
		s.staleOnError += of.Cache.StaleOnError
		s.slowest = max(s.slowest, of.SlowestRead)
		s.excused += of.Cache.Unconfirmed + of.Cache.LeasesLost
	}
	w.note(func() { s.invalidations = w.invalidations })
	s.at = w.now()
	return s
}

func (s sample) minus(o sample) sample {
	return sample{
		from: o.from, at: s.at,
		answers: s.answers - o.answers, invalidations: s.invalidations - o.invalidations,
		loads: s.loads - o.loads, writes: s.writes - o.writes, commits: s.commits - o.commits,
		withoutRedis: s.withoutRedis - o.withoutRedis, staleOnError: s.staleOnError - o.staleOnError,
		excused: s.excused - o.excused,
	}
}

// watch notes when calls of a node went on without Redis, until the traffic is stopped.
func (w *traffic) watch(node int) {
	last, known := int64(0), time.Duration(0)
	without := func(to time.Duration) {
		w.note(func() { w.cutOff = append(w.cutOff, span{node, known, to}) })
	}
	w.repeat(200*time.Millisecond, 300*time.Millisecond, func() {
		asked := w.now()
		s, err := w.f.stats(w.f.nodes[node])
		if err != nil || s.Cache.RedisErrors > last {
			without(w.now())
		}
		if err == nil {
			last, known = s.Cache.RedisErrors, asked
		}
	})
	without(time.Hour) // nobody knows
}

// loadsAllowed is one for each key and TTL, one for each invalidation, and one for each time a
// value could not be stored as it should.
func (s sample) loadsAllowed() int64 {
	expiries := int64((s.at - s.from) / shortestTTL)
	return keys*(1+expiries) + s.invalidations + s.excused
}

func (s sample) report(t *testing.T, phase string, allowed int64) {
	t.Helper()
	t.Logf("%s: in %v %d answers, %d writes, %d loads (%d allowed), %d calls without Redis",
		phase, (s.at - s.from).Round(time.Millisecond), s.answers, s.writes, s.loads, allowed, s.withoutRedis)
	if s.loads > allowed {
		t.Errorf("%s: the database was asked %d times, %d are allowed", phase, s.loads, allowed)
	}
}
