package rebuild

import (
	"sync"
	"time"
)

// fading is a memory of keys that forgets by itself. Two generations take turns, so that what is
// remembered lasts from one to two lives, without a timer of its own.
type fading[T any] struct {
	life time.Duration

	mu       sync.Mutex // guards what follows
	new, old map[string]T
	turn     *time.Timer // nil while there is nothing to forget
	closed   bool
}

// maxFading bounds a generation; a full one takes its turn early.
const maxFading = 1 << 16

// update remembers what change makes of what is known of key, the zero value if nothing is.
func (f *fading[T]) update(key string, change func(T) T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := change(f.findLocked(key))
	if f.closed || f.life == 0 {
		return
	}
	if len(f.new) >= maxFading {
		f.old, f.new = f.new, nil
	}
	if f.new == nil {
		f.new = map[string]T{}
	}
	f.new[key] = t
	if f.turn == nil {
		f.turn = time.AfterFunc(f.life, f.takeTurn)
	}
}

func (f *fading[T]) takeTurn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.old, f.new = f.new, nil
	f.turn = nil
	if len(f.old) > 0 && !f.closed {
		f.turn = time.AfterFunc(f.life, f.takeTurn)
	}
}

func (f *fading[T]) findLocked(key string) T {
	if t, ok := f.new[key]; ok {
		return t
	}
	return f.old[key]
}

func (f *fading[T]) find(key string) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.findLocked(key)
}

func (f *fading[T]) clear(key string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.new, key)
	delete(f.old, key)
}

// reset forgets everything.
func (f *fading[T]) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.new, f.old = nil, nil
}

func (f *fading[T]) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed, f.new, f.old = true, nil, nil
	if f.turn != nil {
		f.turn.Stop()
	}
}
