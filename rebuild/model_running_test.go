package rebuild

// This is running on a host: TestAHostKeepsAndForgetsAsRunningDoes holds it to that.

// nextTurn is the turn of a load's ticket.
func (h *host) nextTurn() u8 {
	turn := h.change.turn
	for i := range h.flying {
		turn = max(turn, h.flying[i].turn)
	}
	for i := range h.jobs {
		turn = max(turn, h.jobs[i].turn)
	}
	return turn + 1
}

// keepsRead is running.keep for a read: what other reads under way will bring is void from now on.
func (h *host) keepsRead(f *reading) bool {
	if f.turn != 0 {
		return h.keepsLoad(f.void, f.turn)
	}
	if f.void != 0 {
		return false
	}
	for i := range h.flying {
		if o := &h.flying[i]; o != f && o.phase != 0 && o.turn == 0 {
			o.void = 1
		}
	}
	return true
}

// keepsLoad is running.keep for a load: what reads under way will bring, and loads begun before it,
// is void from now on.
func (h *host) keepsLoad(void, turn u8) bool {
	if void != 0 {
		return false
	}
	for i := range h.flying {
		if f := &h.flying[i]; f.phase != 0 && (f.turn == 0 || f.turn < turn) {
			f.void = 1
		}
	}
	for i := range h.jobs {
		if h.jobs[i].phase != 0 && h.jobs[i].turn < turn {
			h.jobs[i].void = 1
		}
	}
	if h.change.turn != 0 && h.change.turn < turn {
		h.change.void = 1
	}
	return true
}

// voids is running.forget without what newcomers join.
func (h *host) voids() {
	for i := range h.flying {
		h.flying[i].void |= min(h.flying[i].phase, 1)
	}
	for i := range h.jobs {
		h.jobs[i].void |= min(h.jobs[i].phase, 1)
	}
	h.change.void |= min(h.change.turn, 1)
}

// lead makes the load in slot k the one that newcomers join, unless there is one: that is returned, counted from one.
func (h *host) lead(k u8, refresh bool) u8 {
	if h.joined == 0 || refresh {
		h.joined = k + 1
	}
	return h.joined
}

// leave takes it from newcomers.
func (h *host) leave(k u8) {
	if h.joined == k+1 {
		h.joined = 0
	}
}

// takeFlights is flights.forget.
func (h *host) takeFlights() {
	for i := range h.flying {
		h.flying[i].shared = 0
	}
}

// forget is Node.forget.
func (s *step) forget(n u8) {
	h := &s.hosts[n]
	h.copy = localCopy{}
	if !s.off(voiding) {
		h.voids()
	}
	if !s.off(forgetLoads) {
		h.joined = 0
	}
	if !s.off(forgetFlights) {
		h.takeFlights()
	}
	h.remembers = 0
}

// keep puts what a read has brought into the local tier.
func (s *step) keep(n u8, f *reading, c localCopy) {
	h := &s.hosts[n]
	if !h.keepsRead(f) && !s.off(tickets) {
		return
	}
	if h.copy.version > c.version && c.version != 0 {
		s.breaks("something older is kept over something newer")
	}
	h.copy = c
}

// keepLoaded puts what the load k has brought into the local tier; nothing drops what is there.
func (s *step) keepLoaded(n, k u8, c localCopy) {
	h := &s.hosts[n]
	j := &h.jobs[k]
	if s.off(loadsVoid) {
		if j.void == 0 {
			h.copy = c
			h.copy.loaded = c.has
		}
		return
	}
	if h.keepsLoad(j.void, j.turn) {
		h.copy = c
		h.copy.loaded = c.has
	}
}
