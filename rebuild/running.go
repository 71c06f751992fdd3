package rebuild

import "sync"

// running knows what is under way for each key: reads and loads that may bring something to
// keep, and the load that newcomers may join. It is where keeping and forgetting are made
// exact: what an invalidation has seen running is never kept.
type running struct {
	mu   sync.Mutex // guards keys and all that hangs on it; held while the local tier is changed
	keys map[string]*underway
	turn uint64 // of the last ticket
}

type underway struct {
	tickets map[*ticket]struct{}
	load    *load // nil, or one that newcomers may join
}

// ticket is the right of one read or load to keep what it brings. It must be taken before
// anything is sent or read.
type ticket struct {
	key  string
	load bool
	turn uint64
	void bool // by an invalidation, or by what a load has brought in the meantime
	// What it brings is to be verified: the entry has been written, perhaps by this very load.
	doubted bool
}

func newRunning() *running { return &running{keys: map[string]*underway{}} }

func (r *running) begin(key string, load bool) *ticket {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.turn++
	t := &ticket{key: key, load: load, turn: r.turn}
	r.atLocked(key).tickets[t] = struct{}{}
	return t
}

func (r *running) atLocked(key string) *underway {
	u := r.keys[key]
	if u == nil {
		u = &underway{tickets: map[*ticket]struct{}{}}
		r.keys[key] = u
	}
	return u
}

func (r *running) end(t *ticket) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.keys[t.key]; u != nil {
		delete(u.tickets, t)
		r.tidyLocked(t.key, u)
	}
}

func (r *running) tidyLocked(key string, u *underway) {
	if len(u.tickets) == 0 && u.load == nil {
		delete(r.keys, key)
	}
}

// keep calls store unless t was made void. What a load has brought is newer than what any read now
// under way, or any load begun before it, will bring; and of two reads nobody knows which Redis answered
// first. Those become void.
func (r *running) keep(t *ticket, store func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.void {
		return false
	}
	if u := r.keys[t.key]; u != nil {
		for other := range u.tickets {
			other.void = other.void || other != t && (!other.load || t.load && other.turn < t.turn)
		}
	}
	store()
	return true
}

// valid tells whether t may still keep.
func (r *running) valid(t *ticket) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !t.void
}

// forget makes everything under way for key void and takes it from newcomers; drop takes out
// what has been kept.
func (r *running) forget(key string, drop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.voidLocked(key)
	drop()
}

func (r *running) voidLocked(key string) {
	if u := r.keys[key]; u != nil {
		for t := range u.tickets {
			t.void = true
		}
		delete(r.keys, key)
	}
}

// replace does so unless older says that what is to be kept is. Nothing else is kept in between.
func (r *running) replace(key string, older func() bool, keep func()) (replaced bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if older() {
		return false
	}
	r.voidLocked(key)
	keep()
	return true
}

// doubt makes reads under way for key void, and has what loads bring verified.
func (r *running) doubt(key string, kept func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.keys[key]; u != nil {
		for t := range u.tickets {
			t.void = t.void || !t.load
			t.doubted = true
		}
	}
	kept()
}

// forgetAll does so for all keys. It returns the loads that newcomers could have joined.
func (r *running) forgetAll(dropAll func()) (loads []*load) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, u := range r.keys {
		if u.load != nil {
			loads = append(loads, u.load)
		}
		r.voidLocked(key)
	}
	dropAll()
	return loads
}

// join returns the running load of key, or nil.
func (r *running) join(key string) *load {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.keys[key]; u != nil {
		return u.load
	}
	return nil
}

// lead makes l the load that newcomers join, unless there is one: that is returned. A refresh,
// which is to be newer than whatever runs, takes its place.
func (r *running) lead(l *load) *load {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.atLocked(l.key.Text)
	if u.load == nil || l.refresh {
		u.load = l
	}
	return u.load
}

// leave takes l from newcomers.
func (r *running) leave(l *load) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.keys[l.key.Text]; u != nil && u.load == l {
		u.load = nil
		r.tidyLocked(l.key.Text, u)
	}
}

// empty tells whether nothing is under way.
func (r *running) empty() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.keys) == 0
}
