package main

import "time"

// counts is what the database saw of one key, or of all.
type counts struct {
	loads    int64
	expiries int64
	peak     int // most queries at once for one key, queueing ones included
}

// perExpiry is the number the whole program is about. Loads without any expiry are all too many.
func (c counts) perExpiry() float64 {
	return float64(c.loads) / float64(max(c.expiries, 1))
}

// tally keeps one key's books.
//
// An expiry opens with the first load that begins after the last loaded value passed its TTL; a key never loaded counts as
// passed. Every other load, too early, beside it or after it, adds to loads only. The next expiry cannot open before a
// load has brought a value and that value has passed its TTL in turn, so n loads for one expiry always count as n.
type tally struct {
	counts
	running  int
	loadedAt time.Time // end of the last load that brought a value
	opened   bool      // an expiry has opened since loadedAt
}

// grain is what the clocks may differ: Redis cuts its time to milliseconds and may run a value's life from up to
// one earlier than the end of its load, and its wall clock is slewed against our monotonic one.
const grain = 2 * time.Millisecond

func (t *tally) begin(now time.Time, ttl time.Duration) {
	t.loads++
	t.running++
	t.peak = max(t.peak, t.running)
	if !t.opened && now.Sub(t.loadedAt) >= ttl-grain {
		t.opened = true
		t.expiries++
	}
}

func (t *tally) end(now time.Time, loaded bool) {
	t.running--
	if loaded {
		t.loadedAt, t.opened = now, false
	}
}

func (t *tally) reset() {
	t.counts = counts{peak: t.running}
}
