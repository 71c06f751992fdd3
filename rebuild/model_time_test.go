package rebuild

// troubles are of one node.
func (x *walker) troubles(n u8, h *host) {
	if x.from.left.crashes > 0 {
		x.may("the node is killed and started again", func(s *step) bool { s.crash(n); return true }, n)
	}
	if h.remembers != 0 && x.from.redis.retry == 0 {
		x.does("the node's back-off ends", func(s *step) bool { s.hosts[n].remembers = 0; return true }, n)
	}
}

// crash leaves nothing but what the node has sent, and what its users know.
func (s *step) crash(n u8) {
	s.left.crashes--
	h := &s.hosts[n]
	*h = host{gone: h.gone, soft: h.soft}
	if s.messages {
		h.stream = knows
	}
	for i := range s.commands {
		if s.commands[i].host == n && s.commands[i].kind != 0 {
			s.commands[i].owner, s.commands[i].slot = nobody, 0
		}
	}
}

// time lets windows end, and what is bounded by LocalTTL.
func (x *walker) time() {
	r := &x.from.redis
	if x.from.timely() {
		x.does("time passes", func(s *step) bool { s.tick(); return true })
	}
	if x.from.left.foreign > 0 {
		x.may("somebody else writes %d and DELs the key", func(s *step) bool { s.foreignDelete(); return true }, everywhere, x.from.db+1)
	}
	switch {
	case !r.leased():
	case !x.from.known(r.token, r.start): // its holder is dead
		x.does("the lease of token %d runs out", func(s *step) bool { s.lapse(); return true }, everywhere, r.token)
	case x.from.left.lapses > 0:
		x.may("the lease of token %d runs out, unrenewed", func(s *step) bool { s.left.lapses--; s.lapse(); return true }, everywhere, r.token)
	}
	if r.retry != 0 {
		x.does("the back-off ends", func(s *step) bool { s.redis.retry = 0; return true })
	}
	if r.idle() {
		x.does("the key's lifetime ends", func(s *step) bool { s.redis = cell{}; return true })
	}
	if x.from.lag != 0 {
		x.does("the replica has caught up", func(s *step) bool { s.lag = 0; return true })
	}
	if r.holdDown > overSince && x.from.lag == 0 || x.holdDown && x.from.lag == 0 && x.from.bounded() {
		x.does("the hold-down ends", func(s *step) bool { s.holdDownEnds(); return true })
	}
	if x.from.left.windows > 0 {
		x.windows()
	}
}

// windows end for an entry and its copies at once.
func (x *walker) windows() {
	seen := map[[2]u8]bool{}
	for _, c := range x.from.copies() {
		id := [2]u8{c.version, c.writer}
		if seen[id] || c.ifError == 0 {
			continue
		}
		seen[id] = true
		x.may("a window of the value %d ends", func(s *step) bool { s.left.windows--; s.windowEnds(id); return true }, everywhere, c.value)
	}
}

func (w *world) copies() []localCopy {
	r := &w.redis
	all := []localCopy{{has: r.what, value: r.value, version: r.version, writer: r.writer, fresh: r.fresh, stale: r.stale, ifError: r.ifError}}
	for i := range w.hosts {
		all = append(all, w.hosts[i].copy)
	}
	return all
}

func (s *step) windowEnds(id [2]u8) {
	s.eachWindow(func(version, writer u8, fresh, stale, ifError *u8) {
		switch {
		case [2]u8{version, writer} != id:
		case *fresh != 0:
			*fresh = 0
		case *stale != 0:
			*stale = 0
		default:
			*ifError = 0
		}
	})
}

// bounded tells whether something ends with a hold-down.
func (w *world) bounded() (any bool) {
	w.eachWindow(func(_, _ u8, fresh, stale, ifError *u8) {
		any = any || *fresh == atHoldDown || *stale == atHoldDown || *ifError == atHoldDown
	})
	return any
}

func (s *step) holdDownEnds() {
	if s.redis.holdDown = 0; s.redis.token != 0 {
		s.redis.holdDown = overSince
	}
	s.eachWindow(func(_, _ u8, fresh, stale, ifError *u8) {
		for _, w := range []*u8{fresh, stale, ifError} {
			if *w == atHoldDown {
				*w = 0
			}
		}
	})
}

func (w *world) eachWindow(f func(version, writer u8, fresh, stale, ifError *u8)) {
	ofCell := func(c *cell) { f(c.version, c.writer, &c.fresh, &c.stale, &c.ifError) }
	ofCopy := func(c *localCopy) { f(c.version, c.writer, &c.fresh, &c.stale, &c.ifError) }
	ofCell(&w.redis)
	for i := range w.hosts {
		h := &w.hosts[i]
		ofCopy(&h.copy)
		for k := range h.flying {
			ofCopy(&h.flying[k].held)
			ofCell(&h.flying[k].answer.cell)
		}
		for k := range h.jobs {
			ofCell(&h.jobs[k].answer.cell)
		}
		ofCell(&h.change.answer.cell)
	}
}

// timely tells whether a tick may pass: not while something is under way that RedisTimeout bounds, a renewal is due
// that LocalTTL bounds (four fifths of it: the rest is for the commit), or a message that arrives within 100 ms.
func (w *world) timely() bool {
	for i := range w.hosts {
		h := &w.hosts[i]
		for k := range h.flying {
			f := &h.flying[k]
			if f.phase != 0 && f.phase != flySleep && f.phase != flyAwait && f.sent > 0 {
				return false
			}
		}
		for k := range h.jobs {
			j := &h.jobs[k]
			if j.phase >= jobSends && j.sent > 0 || j.phase != 0 && j.token != 0 && j.renewed > 0 {
				return false
			}
		}
		if h.change.phase == changeCommits && h.change.sent > 0 || h.stream == hears && h.unread[0].kind != 0 {
			return false
		}
	}
	return true
}

func (s *step) tick() {
	for n := range u8(s.nodes) {
		s.hosts[n].tick()
	}
	s.gone[1], s.gone[2] = s.gone[0], s.gone[1]
	s.soft[1], s.soft[2] = s.soft[0], s.soft[1]
}

const settled = 2 // ticks: surely over

func older(age *u8) { *age = min(*age+1, settled) }

func (h *host) tick() {
	if h.copy.has != 0 {
		older(&h.copy.age)
	}
	for k := range h.flying {
		if f := &h.flying[k]; f.phase != 0 {
			older(&f.sent)
			if f.held.has != 0 {
				older(&f.held.age)
			}
		}
	}
	for k := range h.jobs {
		if j := &h.jobs[k]; j.phase != 0 {
			older(&j.began)
			older(&j.sent)
			older(&j.renewed)
		}
	}
	if h.change.phase != 0 {
		older(&h.change.sent)
	}
	switch h.stream {
	case deaf:
		h.stream = knows
	case deafID:
		h.stream = hasID
	}
}

// foreignDelete is a full invalidation in Redis; nodes hear nothing of it.
func (s *step) foreignDelete() {
	s.left.foreign--
	s.db++
	s.revoke(s.redis.token, s.redis.start, command{})
	s.redis = cell{}
	s.gone[0] = s.db
	s.excuse()
}

// lapse is of a holder that Redis has not heard in time: it knows, since its own clock ends the lease earlier.
func (s *step) lapse() {
	s.revoke(s.redis.token, s.redis.start, command{})
	for n := range s.hosts {
		for k := range s.hosts[n].jobs {
			j := &s.hosts[n].jobs[k]
			if j.phase != 0 && j.phase < jobSends && j.token == s.redis.token && j.start == s.redis.start {
				s.loses(u8(n), u8(k))
			}
		}
	}
	s.redis.until = 0
	s.excuse()
}

// excuse: nobody publishes what nobody of ours did. The net under it is the poll.
func (s *step) excuse() {
	for n := range s.hosts {
		for i := range s.hosts[n].flying {
			s.hosts[n].flying[i].excused = 1
		}
	}
}
