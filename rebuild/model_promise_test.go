package rebuild

// follow does what follows from every step: newcomers come at every moment, and join the read that they may join
// with what they may demand now.
func (s *step) follow() {
	for n := range u8(s.nodes) {
		h := &s.hosts[n]
		s.shun(n)
		if _, surely := s.believed(h); surely {
			continue
		}
		for i := range h.flying {
			if f := &h.flying[i]; f.phase != 0 && f.shared == 1 {
				f.gone, f.soft = max(f.gone, h.gone), max(f.soft, h.soft)
				f.bound, f.boundSoft = max(f.bound, s.gone[2]), max(f.boundSoft, s.soft[2])
			}
		}
	}
}

// check looks whether the world keeps the promises.
func (s *step) check() {
	s.checkEntry()
	s.checkLoads()
	for n := range u8(s.nodes) {
		s.checkCopy(&s.hosts[n])
		s.checkWaits(&s.hosts[n])
	}
	s.checkLease()
}

func (s *step) checkEntry() {
	r := &s.redis
	switch {
	case r.what != 0 && r.failures > s.failed:
		s.breaks("P8: a failure is counted twice")
	case r.what == 0 || Kind(r.kind) != KindValue || s.excuses(r.fresh, r.stale, r.ifError):
	case r.value < s.world.gone[0] && max(r.fresh, r.stale, r.ifError) != 0:
		s.breaks("P4: Redis holds what is older than a confirmed invalidation")
	case r.value < s.world.soft[0] && r.fresh != 0:
		s.breaks("Redis holds as fresh what is older than a confirmed expire")
	}
}

// checkCopy: what a hit may get.
func (s *step) checkCopy(h *host) {
	may, _ := s.believed(h)
	c := &h.copy
	if !may || s.excuses(c.fresh, c.stale, c.ifError) {
		return
	}
	switch {
	case c.value < h.gone:
		s.breaks("P5: a hit gets what its node knows to be gone")
	case c.value < s.world.gone[2]:
		s.breaks("P5: a hit gets what has been gone for longer than the bound")
	case c.fresh != 0 && (c.value < h.soft || c.value < s.world.soft[2]):
		s.breaks("a hit gets as fresh what was expired")
	}
}

func (s *step) checkLoads() {
	leased := 0
	for n := range s.hosts {
		beside := 0
		for k := range s.hosts[n].jobs {
			j := &s.hosts[n].jobs[k]
			switch running := j.phase == jobRuns || j.phase == jobHas; {
			case running && j.token != 0 && j.revoked == 0:
				leased++
			case running && j.token == 0 && j.void == 0:
				if may, _ := s.trusts(&s.hosts[n], j.began, j.beganOld); may {
					beside++
				}
			}
		}
		if beside > 1 {
			s.breaks("P1: a node runs two loads without a lease")
		}
	}
	if leased > 1 {
		s.breaks("P1: two loads hold a lease that nothing has revoked")
	}
}

// checkWaits: who sleeps is woken by whatever ends the lease that it has seen.
func (s *step) checkWaits(h *host) {
	for i := range h.flying {
		f := &h.flying[i]
		if f.phase == flySleep && f.woken == 0 && f.excused == 0 && (!s.redis.leased() || s.redis.waiters == 0) {
			s.breaks("P3: a lease has ended, who waits for it is not woken")
		}
	}
}

// checkLease: somebody knows of every lease, and will end it. A crash is not somebody.
func (s *step) checkLease() {
	r := &s.redis
	if !r.leased() || s.left.crashes != s.most.crashes || s.known(r.token, r.start) {
		return
	}
	s.breaks("R10: nobody knows of the lease")
}

func (w *world) known(token, start u8) bool {
	for n := range w.hosts {
		h := &w.hosts[n]
		for i := range h.flying {
			if f := &h.flying[i]; f.phase == flyTry && f.token == token {
				return true
			}
		}
		for k := range h.jobs {
			if j := &h.jobs[k]; j.phase != 0 && j.token == token && j.start == start {
				return true
			}
		}
		for _, u := range h.unsure {
			if u.token == token && u.except != start {
				return true
			}
		}
		if c := &h.change; c.phase != 0 && c.token == token {
			return true
		}
	}
	for _, c := range w.commands {
		if c.kind != 0 && c.kind != sendAcquire && c.kind != sendSeize && c.token == token && c.start == start {
			return true
		}
	}
	return false
}
