package rebuild

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
)

// flights are the reads under way: callers that ask for the same key in the same way share
// one. What is handed to singleflight must not panic, end its goroutine or block without
// end: it runs no user's code, and every wait in it is bounded.
type flights struct {
	group singleflight.Group
	turns [flightStripes]atomic.Uint64 // part of a flight's name, by the key's hash
	alone atomic.Uint64                // flights that are nobody else's

	mu     sync.Mutex // guards crowds and their counts
	crowds map[string]*crowd
}

const flightStripes = 1 << 8

// crowd are those who wait for a flight. gone ends when the last of them has left.
type crowd struct {
	waiting int
	gone    context.Context
	leave   context.CancelFunc
}

// seat is one caller's place in a flight.
type seat struct {
	flights *flights
	name    string
	crowd   *crowd
	landed  <-chan singleflight.Result
}

var (
	// errImpatient ends the wait of a caller who would rather be served something stale.
	errImpatient = errors.New("levee: waited for WaitFresh")
	// errDeserted ends a flight that waits for a slot when nobody waits for it any more.
	errDeserted = errors.New("levee: nobody waits")
)

// name is what callers share a flight by. What stands before the colon tells how they ask, so no
// key can look like another's.
func (f *flights) name(ctx context.Context, w Want, k Key) string {
	if w.NoStore {
		return "alone" + strconv.FormatUint(f.alone.Add(1), 36) + ":"
	}
	return lane(ctx) + w.flight() + "." + strconv.FormatUint(f.turn(k).Load(), 36) + ":" + k.Text
}

// lane keeps a load's own reads out of flights that may be waiting for the slot it holds.
func lane(ctx context.Context) string {
	if nested(ctx) {
		return "nested "
	}
	return ""
}

func (f *flights) turn(k Key) *atomic.Uint64 { return &f.turns[k.Hash%flightStripes] }

// board takes a seat in the flight of this name, and begins it if there is none.
func (f *flights) board(name string, fly func(gone context.Context) (Answer, error)) *seat {
	c := f.join(name)
	return &seat{f, name, c, f.group.DoChan(name, func() (any, error) {
		a, err := fly(c.gone)
		return a, err
	})}
}

func (f *flights) join(name string) *crowd {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.crowds[name]
	if c == nil {
		c = &crowd{}
		c.gone, c.leave = context.WithCancel(context.Background())
		if f.crowds == nil {
			f.crowds = map[string]*crowd{}
		}
		f.crowds[name] = c
	}
	c.waiting++
	return c
}

// leave gives the seat up.
func (s *seat) leave() {
	f, c := s.flights, s.crowd
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.waiting--; c.waiting > 0 {
		return
	}
	c.leave()
	if f.crowds[s.name] == c {
		delete(f.crowds, s.name)
	}
}

// wait waits until the flight has landed or ctx ends, or for patience if that is not 0.
func (s *seat) wait(ctx context.Context, patience time.Duration) (Answer, error) {
	var over <-chan time.Time
	if patience > 0 {
		t := time.NewTimer(patience)
		defer t.Stop()
		over = t.C
	}
	select {
	case r := <-s.landed:
		a, _ := r.Val.(Answer)
		return a, r.Err
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	case <-over:
		return Answer{}, errImpatient
	}
}

// share flies, or waits with those who do.
func (f *flights) share(ctx context.Context, name string, fly func(gone context.Context) (Answer, error)) (Answer, error) {
	for {
		s := f.board(name, fly)
		a, err := s.wait(ctx, 0)
		s.leave()
		if err != errDeserted { // by others, just before this caller came
			return a, err
		}
	}
}

// forget lets newcomers fly anew, whatever they want. Those of keys of the same stripe do too,
// and find what is loading or loaded.
func (f *flights) forget(k Key) { f.turn(k).Add(1) }

// forgetAll does so for all keys.
func (f *flights) forgetAll() {
	for i := range f.turns {
		f.turns[i].Add(1)
	}
}
