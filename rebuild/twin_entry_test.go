package rebuild

// twin is what stands under one key, and the scripts on it in Go: one pure method a script, which
// gets the server's time and changes the twin as the Lua changes the key. Random sequences of calls
// hold it to the Lua (twin_random_test.go); the model walks on it.
type twin struct {
	what    presence
	Entry          // if what is present
	raw     string // if what is garbled
	until   Millis // the end of the key's lifetime
	without guards // what the model has taken out, to see that it notices; else none
}

type presence uint8

const (
	absent  presence = iota
	garbled          // something that is no entry of this key
	present
)

// told is the answer of a script.
type told struct {
	Status    Status
	Published int
	Header    Header // of acquire and commit
	Rest      string // what follows it
	Numbers   [2]int64
}

func (m Micros) millis() Millis { return Millis(m / 1000) }

// passes lets the key die if its time has come.
func (w *twin) passes(us Micros) {
	if w.what != absent && w.until <= us.millis() {
		w.remove()
	}
}

// remove is also what a foreign DEL does.
func (w *twin) remove() { *w = twin{without: w.without} }

// set puts an entry in the place of what is there.
func (w *twin) set(e Entry, until Millis) {
	*w = twin{what: present, Entry: e, until: until, without: w.without}
}

// touch makes the entry live for at least n more.
func (w *twin) touch(us Micros, n Millis) {
	if w.what != absent {
		w.until = max(w.until, us.millis()+max(n, 1))
	}
}

// drop removes the entry, or leaves a placeholder as long as the hold-down.
func (w *twin) drop(us Micros, holdDown Millis) {
	if holdDown <= us.millis() {
		w.remove()
		return
	}
	w.set(Entry{Header: Header{Kind: KindLease, HoldDown: holdDown, Row: w.Row}}, holdDown)
}

// later is the hold-down to keep: the later of the entry's and one that begins now.
func (w *twin) later(us Micros, d Millis) Millis {
	ends := Millis(0)
	if d > 0 {
		ends = us.millis() + d
	}
	return max(ends, w.HoldDown)
}

func (w *twin) leased(us Micros) bool { return w.what == present && w.view(us).Held }

func (w *twin) current(us Micros) bool {
	return w.Fresh > us.millis() && w.Version <= us+aheadOf
}

// holds tells whether the lease (token, start) is still in the entry, run out or not.
func (w *twin) holds(token string, start Micros) bool {
	return w.what == present && w.Token == token && (w.Start == start || w.without.has(leaseStart))
}

// beginning is the start of a new lease.
func (w *twin) beginning(us Micros) Micros {
	start := us
	for _, earlier := range []Micros{w.Version, w.Start} {
		if earlier <= us+aheadOf {
			start = max(start, earlier+1)
		}
	}
	return start
}

// lease writes the lease; the flag of those who wait stays.
func (w *twin) lease(token string, start Micros, until Millis) {
	w.Token, w.Start, w.LeaseUntil = token, start, until
}

// unlease ends the lease, and tells whether somebody is to be woken.
func (w *twin) unlease() int {
	woken := w.woken()
	w.lease("", 0, 0)
	w.Waiters = false
	return woken
}

// woken is 1 if a script that ends the lease has somebody to wake.
func (w *twin) woken() int {
	if w.Waiters {
		return 1
	}
	return 0
}

// refused is the answer to who does not hold the lease any more: a wake-up goes out all the same.
func (w *twin) refused(s Status) told {
	if w.without.has(refusalWakes) {
		return told{Status: s}
	}
	return told{Status: s, Published: 1}
}
