package rebuild

// tooLate is an instant that is over at any time.
const tooLate Micros = 1

// now is the server's time: later than anything that it has told anybody.
func (w *world) now() Micros { return modelClock + Micros(w.newest()) + 1 }

// execute runs the script of c on the twin.
func (s *step) execute(c command) {
	if c.kind == sendMessage {
		s.append(c)
		return
	}
	before, us := s.redis, s.now()
	w := before.twin(s.without)
	r := s.run(&w, us, c)
	s.becomes(&w)
	s.judge(c, before, r, us)
	if c.owner == nobody {
		return
	}
	a := answer{came: fine, status: statusNumber(r.Status), cell: s.redis}
	if r.Header.Kind == 0 {
		a.cell = cell{}
	}
	if r.Status == statusSeized {
		a.cell = cell{what: 1, start: rank(Micros(r.Numbers[0]))}
	}
	*s.answerOf(c) = a
}

// becomes writes back what a script has made of the entry. A hold-down that was over when the lease
// began is as good as none.
func (s *step) becomes(w *twin) {
	start := s.redis.start
	s.redis = cellOf(w)
	if s.redis.holdDown == overSince && (s.redis.token == 0 || s.redis.start != start) {
		s.redis.holdDown = 0
	}
}

func (s *step) run(w *twin, us Micros, c command) told {
	token, start := tokenNames[c.token], Micros(c.start)
	late := Micros(c.late) * tooLate
	switch c.kind {
	case sendAcquire:
		return w.acquire(us, acquireArgs{token: token, lease: Millis(atLease), bar: Micros(c.bar), mode: modes[c.mode], notAfter: late})
	case sendCommit, sendSetCommit:
		return w.commit(us, s.commitOf(c))
	case sendFail:
		return w.fail(us, failArgs{token: token, start: start, pause: modelPause})
	case sendPass:
		return w.pass(us, token, start, Millis(atFresh))
	case sendDelete:
		return w.delete(us, s.holdDownOf(c))
	case sendExpire:
		return w.expire(us, 0)
	case sendSeize:
		return w.seize(us, seizeArgs{token: token, lease: Millis(atLease), row: uint64(c.row), notAfter: late})
	}
	r := w.seize(us, seizeArgs{token: token, lease: Millis(atLease)})
	a := s.commitOf(c)
	a.start, a.entry.Version = w.Start, w.Start
	w.commit(us, a)
	return r
}

// holdDownOf is only of the first delete: a plain one follows.
func (s *step) holdDownOf(c command) Millis {
	if s.holdDown && c.row == 0 {
		return Millis(atHoldDown)
	}
	return 0
}

var modelPause = pauseArgs{backoff: Millis(atRetry), longest: Millis(atRetry), jitter: 1000}

func (s *step) commitOf(c command) commitArgs {
	token, start := tokenNames[c.token], Micros(c.start)
	return commitArgs{token: token, start: start, fresh: Millis(atFresh), stale: Millis(atStale), ifError: Millis(atIfError),
		row: uint64(c.row), setter: c.kind != sendCommit, pause: modelPause, entry: Entry{
			Header:  Header{Kind: KindValue, Identity: Identity{start, token}, Row: uint64(c.row)},
			Payload: payloads[c.value],
		}}
}

// judge looks at what a script has done to the lease that was there.
func (s *step) judge(c command, before cell, r told, us Micros) {
	if r.Published == 1 {
		s.wake()
	}
	same := before.token == s.redis.token && before.start == s.redis.start
	if before.leased() && !same {
		s.revoke(before.token, before.start, c)
	}
	if (r.Status == statusRefused || r.Status == statusLost) && r.Published != 1 {
		s.unwoken(c.token)
	}
	if c.kind == sendAcquire && r.Status == statusLeased && !same {
		s.granted(c, before, us)
	}
	if c.kind == sendAcquire && c.mode == modeWait && c.owner == ofReading && r.Status == statusHeld {
		f := &s.hosts[c.host].flying[c.slot]
		f.holder, f.since, f.excused = s.redis.token, s.redis.start, 0
	}
	if c.owner == ofChange || c.kind == sendDelete || c.kind == sendExpire || c.kind == sendSeize {
		s.ran(c)
	}
}

// ran notes that the script of a change has taken effect before its caller returned.
func (s *step) ran(c command) {
	ch := &s.hosts[c.host].change
	if ch.phase == changeAsks && ch.value == c.value && c.kind != sendSetCommit {
		ch.ran = 1
	}
}

// revoke marks the load whose lease something else than its own end has taken.
func (s *step) revoke(token, start u8, by command) {
	own := by.token == token && (by.kind == sendCommit || by.kind == sendFail || by.kind == sendPass || by.kind == sendSetCommit)
	grabs := by.kind == sendAcquire
	for n := range s.hosts {
		for i := range s.hosts[n].jobs {
			j := &s.hosts[n].jobs[i]
			if j.token == token && j.start == start && !own && !grabs {
				j.revoked = 1
			}
		}
	}
}

// granted is judged by what was there before.
func (s *step) granted(c command, before cell, us Micros) {
	switch {
	case before.what != 0 && before.retry != 0:
		s.breaks("P8: a load is begun during the back-off")
	case c.bar != 0 && c.bar != forEver && before.what != 0 && before.fresh != 0 && before.version >= c.bar:
		s.breaks("P1: what has just been refreshed is refreshed again")
	}
}

// wake tells everybody who listens.
func (s *step) wake() {
	for n := range s.hosts {
		for i := range s.hosts[n].flying {
			if f := &s.hosts[n].flying[i]; f.phase == flySleep || f.phase == flyAsk {
				f.woken = 1
			}
		}
	}
}

// unwoken: who holds token is told that its lease is gone, and nobody else is.
func (s *step) unwoken(token u8) {
	for n := range s.hosts {
		for i := range s.hosts[n].flying {
			if f := &s.hosts[n].flying[i]; f.phase == flySleep && f.holder == token && f.woken == 0 {
				s.breaks("P3: the holder knows that its lease is gone, who waits for it does not")
			}
		}
	}
}
