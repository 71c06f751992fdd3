package rebuild

// joins is the load that newcomers join.
func (s *step) joins(n u8) u8 { return s.hosts[n].joined }

// launch begins a load for the reading i; unless it is in the background the reading awaits it. false
// if the node has no room for another in this model.
func (s *step) launch(n, i, token, start, background u8) bool {
	h := &s.hosts[n]
	f := &h.flying[i]
	if running := h.joined; running != 0 && f.refresh == 0 && !s.off(joining) { // running.lead
		if background == 0 {
			f.phase, f.job = flyAwait, running
		}
		return token == 0 || s.giveBack(n, unsure{token: token, stage: giveLast})
	}
	for k := range h.jobs {
		if h.jobs[k].phase != 0 {
			continue
		}
		h.jobs[k] = job{phase: jobRuns, background: background, refresh: f.refresh, token: token, start: start, turn: h.nextTurn()}
		if r := &s.redis; r.token != token || r.start != start || !r.leased() {
			h.jobs[k].revoked = min(token, 1)
		}
		h.lead(u8(k), f.refresh != 0 || s.off(joining))
		if background == 0 {
			f.phase, f.job = flyAwait, u8(k)+1
		}
		return true
	}
	return false
}

// loads lets what is under way go on.
func (x *walker) loads(n u8, h *host) {
	for k := range u8(maxJobs) {
		j := &h.jobs[k]
		switch {
		case j.phase == jobRuns:
			x.does("load %d reads the database: %d", func(s *step) bool { return s.reads(n, k, s.db) }, n, k, x.from.db)
			if x.from.lag != 0 {
				x.does("load %d reads a replica that lags: %d", func(s *step) bool { return s.reads(n, k, s.db-1) }, n, k, x.from.db-1)
			}
		case j.phase == jobHas:
			x.does("load %d returns %d", func(s *step) bool { return s.returns(n, k) }, n, k, j.value)
			if x.from.left.unstored > 0 {
				x.may("load %d returns what may not be stored: %d", func(s *step) bool { return s.unstorable(n, k) }, n, k, j.value)
			}
		case j.answer.came != 0:
			x.does("load %d goes on", func(s *step) bool { return s.concludes(n, k) }, n, k)
		}
		if (j.phase == jobRuns || j.phase == jobHas) && x.from.left.failures > 0 {
			x.may("load %d fails", func(s *step) bool { return s.fails(n, k) }, n, k)
		}
		if (j.phase == jobRuns || j.phase == jobHas) && j.token != 0 {
			x.renews(n, k, j)
		}
	}
}

// renews is one round trip: that it is renewed in time matters, and what is found when it is not held.
func (x *walker) renews(n, k u8, j *job) {
	lost := x.from.redis.token != j.token || x.from.redis.start != j.start
	if j.renewed == 0 && !lost || lost && x.from.hosts[n].joined != k+1 && j.renewed == 0 {
		return
	}
	x.does("the lease of load %d is renewed", func(s *step) bool {
		w, us := s.redis.twin(s.without), s.now()
		before := s.redis
		j := &s.hosts[n].jobs[k]
		r := w.renew(us, tokenNames[j.token], Micros(j.start), Millis(atLease))
		s.becomes(&w)
		s.judge(command{host: n, token: j.token}, before, r, us)
		j.renewed = 0
		if r.Status == statusLost {
			s.loses(n, k)
		}
		return true
	}, n, k)
}

// loses closes the load to newcomers: see leaseLost.
func (s *step) loses(n, k u8) {
	h := &s.hosts[n]
	if s.off(lostCloses) {
		return
	}
	h.leave(k)
	h.takeFlights()
}

// shun closes a load without a lease to newcomers when it is trusted no more, as joinable says.
func (s *step) shun(n u8) {
	h := &s.hosts[n]
	if h.joined == 0 || s.off(besideCloses) {
		return
	}
	j := &h.jobs[h.joined-1]
	if may, _ := s.trusts(h, j.began, j.beganOld); j.token == 0 && !may {
		s.loses(n, h.joined-1)
	}
}

func (s *step) reads(n, k, value u8) bool {
	j := &s.hosts[n].jobs[k]
	j.phase, j.value = jobHas, value
	return true
}

// returns sends the commit, or keeps what Redis is not asked for.
func (s *step) returns(n, k u8) bool {
	h := &s.hosts[n]
	j := &h.jobs[k]
	h.remembers = 0
	if j.token == 0 {
		if h.copy.has == 0 || j.row == 0 || h.copy.row <= j.row { // newerRow
			s.keepLoaded(n, k, s.own(j))
		}
		s.ends(n, k)
		return true
	}
	return s.conclude(n, k, jobSends)
}

// own is the copy of a load that Redis has not confirmed: believed from its start only.
func (s *step) own(j *job) localCopy {
	c := localCopy{has: 1, value: j.value, row: j.row, fresh: atFresh, stale: atStale, ifError: atIfError, age: j.began, old: j.beganOld}
	if s.off(beliefFromStart) {
		c.age, c.old = 0, 0
	}
	if s.off(oldLoads) {
		c.old = 0
	}
	return c
}

// stored is the copy of a load that Redis has confirmed: had anything revoked it before the commit was sent, the
// lease would have been gone.
func (s *step) stored(j *job, c *cell) localCopy {
	l := localCopy{has: 1, value: j.value, version: c.version, writer: c.writer, row: c.row,
		fresh: c.fresh, stale: c.stale, ifError: c.ifError, age: j.sent, old: j.sentOld}
	if s.off(commitFromSending) {
		l.age = 0
	}
	return l
}

// conclude sends what ends the lease.
func (s *step) conclude(n, k, phase u8) bool {
	j := &s.hosts[n].jobs[k]
	j.phase, j.sent, j.sentOld, j.twice = phase, 0, 0, 0
	j.answer = answer{}
	return s.send(s.commandOfJob(n, k))
}

func (s *step) commandOfJob(n, k u8) command {
	j := &s.hosts[n].jobs[k]
	c := command{host: n, owner: ofJob, slot: k, token: j.token, start: j.start}
	switch j.phase {
	case jobSends:
		c.kind, c.value = sendCommit, j.value
	case jobPasses:
		c.kind = sendPass
	default:
		c.kind = sendFail
	}
	return c
}

func (s *step) fails(n, k u8) bool {
	h := &s.hosts[n]
	j := &h.jobs[k]
	s.left.failures--
	s.failed++
	if j.void == 0 {
		h.remembers = 1
	}
	if j.token == 0 {
		s.ends(n, k)
		return true
	}
	return s.conclude(n, k, jobFails)
}

// unstorable is kept nowhere, and other nodes are told not to queue.
func (s *step) unstorable(n, k u8) bool {
	h := &s.hosts[n]
	j := &h.jobs[k]
	s.left.unstored--
	h.remembers = 0
	s.keepLoaded(n, k, localCopy{})
	if j.token == 0 {
		s.ends(n, k)
		return true
	}
	return s.conclude(n, k, jobPasses)
}

// concludes goes on with the answer to what ended the lease.
func (s *step) concludes(n, k u8) bool {
	j := &s.hosts[n].jobs[k]
	a := j.answer
	j.answer = answer{}
	switch {
	case a.came == silence:
		return s.unconfirmed(n, k)
	case a.came == noMemory:
		s.keepLoaded(n, k, s.own(j))
		if s.off(passing1) {
			break
		}
		return s.conclude(n, k, jobPasses)
	case statuses[a.status] == statusCommitted:
		s.keepLoaded(n, k, s.stored(j, &a.cell))
	case statuses[a.status] == statusRefused || j.phase == jobSends:
		if !s.off(refusedGivesBack) && !s.giveBack(n, unsure{token: j.token, stage: giveNow}) {
			return false
		}
	}
	s.ends(n, k)
	return true
}

// unconfirmed keeps the value for a moment, and asks again behind the answer.
func (s *step) unconfirmed(n, k u8) bool {
	j := &s.hosts[n].jobs[k]
	if j.phase == jobSends {
		s.keepLoaded(n, k, s.own(j))
	}
	c := s.commandOfJob(n, k)
	c.owner, c.slot = nobody, 0
	for _, other := range s.commands {
		if other.kind == c.kind && other.token == c.token {
			s.ends(n, k)
			return true // it is in the network still
		}
	}
	s.ends(n, k)
	return s.send(c)
}

// ends answers those who wait for the load.
func (s *step) ends(n, k u8) {
	h := &s.hosts[n]
	j := h.jobs[k]
	for i := range h.flying {
		f := &h.flying[i]
		if f.phase != flyAwait || f.job != k+1 {
			continue
		}
		if j.phase != jobFails && j.phase != jobRuns && !s.holdDown { // its callers get what a replica that lags has shown
			s.gives(f, localCopy{has: 1, value: j.value, fresh: atFresh, stale: atStale, ifError: atIfError}, false)
		}
		s.land(n, u8(i))
	}
	h.jobs[k] = job{}
	h.leave(k)
}
