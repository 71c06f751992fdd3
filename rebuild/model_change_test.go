package rebuild

// changes begins a write to the database with the invalidation that follows it, and goes on with it.
func (x *walker) changes(n u8, h *host) {
	c := &h.change
	switch {
	case c.phase == 0 && x.from.left.changes > 0 && x.orderly():
		for _, kind := range x.kinds {
			x.may(changeNames[kind]+" begins; it has written %d", func(s *step) bool { return s.begins(n, kind) }, n, x.from.db+1)
		}
	case c.phase != 0 && c.answer.came != 0:
		x.does("the "+changeNames[c.kind]+" of %d goes on", func(s *step) bool { return s.goesOn(n) }, n, c.value)
	}
}

var changeNames = [...]string{"", "Delete", "Expire", "Set"}

// orderly keeps writes from beginning while a Set waits for its seize: which of the two is the later one is for
// row versions to say. Once the seize has run it is the earlier one.
func (x *walker) orderly() bool {
	if x.holdDown && x.from.gone[0] < x.from.db {
		return false // a plain delete comes after the one that has a hold-down
	}
	for i := range x.from.hosts {
		if c := &x.from.hosts[i].change; c.kind == setting && c.phase == changeAsks && c.ran == 0 && !x.rows {
			return false
		}
	}
	return true
}

func (s *step) begins(n, kind u8) bool {
	s.left.changes--
	h, first := &s.hosts[n], s.db == 0
	if first || !s.holdDown { // of two deletes with a hold-down between them the second writes nothing
		s.db++
	}
	h.change = change{phase: changeAsks, kind: kind, value: s.db}
	c := &h.change
	switch {
	case kind == setting:
		c.token = s.unused()
		if s.rows {
			c.row = s.db
		}
	case first && s.holdDown:
		s.lag = 1
	case s.holdDown:
		c.row = 1 // a plain one: see holdDownOf
	}
	if s.off(forgetAfter) {
		s.forget(n)
	}
	if s.off(messageAfter) && s.messages {
		s.append(command{host: n, value: c.value, mode: kind})
	}
	return s.send(s.commandOfChange(n))
}

func (s *step) commandOfChange(n u8) command {
	c := &s.hosts[n].change
	m := command{kind: sendDelete, host: n, owner: ofChange, token: c.token, value: c.value, row: c.row}
	switch {
	case c.phase == changeTells:
		m.kind, m.mode = sendMessage, c.kind
	case c.phase == changeCommits:
		m.kind, m.start = sendSetCommit, c.start
	case c.kind == expiring:
		m.kind = sendExpire
	case c.kind == setting && s.off(twoSteps):
		m.kind = sendSet
	case c.kind == setting:
		m.kind = sendSeize
	}
	return m
}

func (s *step) goesOn(n u8) bool {
	c := &s.hosts[n].change
	a := c.answer
	c.answer = answer{}
	switch c.phase {
	case changeAsks:
		return s.invalidated(n, a)
	case changeTells:
		if a.came == silence {
			return s.failed1(n)
		}
		return s.told(n)
	}
	return s.committed(n, a)
}

// invalidated forgets, whatever has come back, and only then tells the others.
func (s *step) invalidated(n u8, a answer) bool {
	c := &s.hosts[n].change
	if !s.off(forgetAfter) && (a.came == fine || !s.off(forgetAlways)) {
		s.forget(n)
	}
	if c.kind == setting && (a.came == silence || c.twice != 0) && !s.off(twoSteps) {
		if !s.giveBack(n, unsure{token: c.token, stage: giveNow}) {
			return false
		}
	}
	if a.came == silence {
		return s.failed1(n)
	}
	if c.kind == setting && (statuses[a.status] != statusSeized || c.twice != 0 && !s.off(twiceDeletes)) {
		c.kind = deleting // an older row version, or it came late or twice and only deleted
	}
	c.start = a.cell.start
	if !s.messages || s.off(messageAfter) {
		return s.told(n)
	}
	c.phase, c.twice = changeTells, 0
	return s.send(s.commandOfChange(n))
}

// told goes on when the others will hear of it.
func (s *step) told(n u8) bool {
	c := &s.hosts[n].change
	if c.kind != setting || s.off(twoSteps) {
		s.returned(n)
		return true
	}
	c.phase, c.twice, c.sent, c.sentOld = changeCommits, 0, 0, 0
	c.turn = s.hosts[n].nextTurn()
	return s.send(s.commandOfChange(n))
}

// committed keeps what a Set has stored. Refused, somebody was later: a success.
func (s *step) committed(n u8, a answer) bool {
	h := &s.hosts[n]
	c := &h.change
	switch {
	case a.came == silence:
		if !s.giveBack(n, unsure{token: c.token, stage: giveNow}) {
			return false
		}
	case statuses[a.status] == statusCommitted:
		e := a.cell
		if h.keepsLoad(c.void, c.turn) || s.off(setTicket) {
			h.copy = localCopy{has: 1, value: c.value, version: e.version, writer: e.writer, row: e.row,
				fresh: e.fresh, stale: e.stale, ifError: e.ifError, age: c.sent, old: c.sentOld, loaded: 1}
		}
	}
	s.returned(n)
	return true
}

// returned is a success: from now on nobody is to see what was before.
func (s *step) returned(n u8) {
	h := &s.hosts[n]
	c := h.change
	h.change = change{}
	h.hears(c.kind, c.value)
	if c.kind == expiring {
		s.soft[0] = max(s.soft[0], c.value)
		return
	}
	s.gone[0] = max(s.gone[0], c.value)
}

// failed1 is an error. If the script has run all the same, this node is not to serve what was before.
func (s *step) failed1(n u8) bool {
	h := &s.hosts[n]
	c := h.change
	h.change = change{}
	if c.ran != 0 {
		h.hears(c.kind, c.value)
	}
	return true
}

// hears notes what this node is not to serve to callers that come now.
func (h *host) hears(kind, value u8) {
	if kind == expiring {
		h.soft = max(h.soft, value)
		return
	}
	h.gone = max(h.gone, value)
}

// giveBack notes a token to be given back; false if the model has no room.
func (s *step) giveBack(n u8, u unsure) bool {
	h := &s.hosts[n]
	for i := range h.unsure {
		if h.unsure[i].token == 0 {
			h.unsure[i] = u
			return true
		}
	}
	return false
}

// givesBack releases what is in doubt: now, and when Redis grants it no longer.
func (x *walker) givesBack(n u8, h *host) {
	for i := range u8(maxUnsure) {
		u := h.unsure[i]
		switch u.stage {
		case giveNow, giveLast:
			x.does("token %d is given back", func(s *step) bool { s.release(n, i); return true }, n, u.token)
		case giveWaits:
			x.does("Redis will grant token %d no longer", func(s *step) bool {
				for k := range s.commands {
					if s.commands[k].token == u.token && (s.commands[k].kind == sendAcquire || s.commands[k].kind == sendSeize) {
						s.commands[k].late = 1
					}
				}
				s.hosts[n].unsure[i].stage = giveLast
				return true
			}, n, u.token)
		}
	}
}

func (s *step) release(n, i u8) {
	u := &s.hosts[n].unsure[i]
	w, us, before := s.redis.twin(s.without), s.now(), s.redis
	r := w.release(us, tokenNames[u.token], 0, Micros(u.except))
	s.becomes(&w)
	s.judge(command{host: n, token: u.token}, before, r, us)
	if u.stage++; u.stage > giveLast || u.stage == giveWaits && s.off(secondRelease) {
		*u = unsure{}
	}
}
