package main

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A source answers what is not cached: the database, or in a node process the way to it.
type source interface {
	query(ctx context.Context, key string) (string, error)
}

// database is simulated: a query takes a fixed time, and only so many run at once. It keeps the books of the comparison.
type database struct {
	load  time.Duration
	ttl   time.Duration
	slots chan struct{} // nil: no limit

	mu       sync.Mutex // guards what follows
	idle     sync.Cond  // told when running falls to zero
	keys     map[string]*tally
	running  int
	sequence uint64
}

func newDatabase(load, ttl time.Duration, conns int) *database {
	d := &database{load: load, ttl: ttl, keys: map[string]*tally{}}
	d.idle.L = &d.mu
	if conns > 0 {
		d.slots = make(chan struct{}, conns)
	}
	return d
}

// query counts from the moment it arrives: one that queues for a connection weighs on a database too.
func (d *database) query(ctx context.Context, key string) (string, error) {
	d.begin(key)
	err := d.work(ctx)
	return d.end(key, err)
}

func (d *database) work(ctx context.Context) error {
	if d.slots != nil {
		select {
		case d.slots <- struct{}{}:
			defer func() { <-d.slots }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	timer := time.NewTimer(d.load)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (d *database) begin(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.keys[key]
	if t == nil {
		t = new(tally)
		d.keys[key] = t
	}
	d.running++
	t.begin(time.Now(), d.ttl)
}

func (d *database) end(key string, err error) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keys[key].end(time.Now(), err == nil)
	if d.running--; d.running == 0 {
		d.idle.Broadcast()
	}
	if err != nil {
		return "", err
	}
	d.sequence++
	return encode(key, d.sequence), nil
}

// quiesce waits until no query runs.
func (d *database) quiesce() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.running > 0 {
		d.idle.Wait()
	}
}

// now tells how many queries run at this moment and how many were asked since the last reset.
func (d *database) now() (running int, loads int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.keys {
		loads += t.loads
	}
	return d.running, loads
}

// state tells the number of the last value and how many queries run.
func (d *database) state() (sequence uint64, running int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sequence, d.running
}

// reset starts the count anew; when each key was loaded last is remembered.
func (d *database) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.keys {
		t.reset()
	}
}

// totals adds up the keys; peak is that of the worst key.
func (d *database) totals() (sum counts) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.keys {
		sum.loads += t.loads
		sum.expiries += t.expiries
		sum.peak = max(sum.peak, t.peak)
	}
	return sum
}

// encode makes the value of a key. Each is different, so that a reader can tell whose value it got, and a new one from an old one.
func encode(key string, sequence uint64) string {
	return key + "#" + strconv.FormatUint(sequence, 10)
}

// decode tells the number of a value, and whether it is one of this key.
func decode(key, value string) (sequence uint64, ok bool) {
	rest, ok := strings.CutPrefix(value, key)
	if !ok || len(rest) < 2 || rest[0] != '#' {
		return 0, false
	}
	sequence, err := strconv.ParseUint(rest[1:], 10, 64)
	return sequence, err == nil
}
