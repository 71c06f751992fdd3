package rebuild

// believed tells whether the node may serve its copy unasked, and whether it surely does.
func (s *step) believed(h *host) (may, surely bool) {
	c := &h.copy
	if c.has == 0 || Decide(View{State: c.at()}, anything).Deed != Serve {
		return false, false
	}
	old := c.old
	if s.off(oldCopies) {
		old = 0
	}
	return s.trusts(h, c.age, old)
}

// readings begins a Get or background work, and goes on with what is under way.
func (x *walker) readings(n u8, h *host) {
	x.begins(n, h)
	for i := range u8(maxFlying) {
		switch f := &h.flying[i]; {
		case f.phase == 0:
		case f.answer.came != 0:
			x.does("read %d goes on", func(s *step) bool { return s.receive(n, i) }, n, i)
		case f.phase == flyGet || f.phase == flyHeader:
			x.does("Redis answers read %d", func(s *step) bool { return s.look(n, i) }, n, i)
			if x.from.left.faults > 0 {
				x.may("silence for read %d", func(s *step) bool {
					s.left.faults--
					s.hosts[n].flying[i].answer.came = silence
					return true
				}, n, i)
			}
		case f.phase == flySleep && (f.woken != 0 || x.changed(f)):
			x.does("the waiter of read %d asks", func(s *step) bool { return s.ask(n, i) }, n, i)
		}
	}
}

func (x *walker) begins(n u8, h *host) {
	s := step{scope: x.scope}
	_, surely := s.believed(h)
	may, _ := s.believed(h)
	if x.from.left.gets > 0 {
		if !surely && !h.flies(0) {
			x.may("Get", func(s *step) bool { s.left.gets--; return s.get(n) }, n)
		}
		if may && !h.flies(1) {
			x.may("a hit sees to its copy", func(s *step) bool { s.left.gets--; return s.tend(n, false) }, n)
			if x.early && h.copy.at() == Fresh && h.copy.version != 0 {
				x.may("early refresh", func(s *step) bool { s.left.gets--; return s.tend(n, true) }, n)
			}
		}
	}
	if x.from.left.refreshes > 0 {
		x.may("Refresh", func(s *step) bool { s.left.refreshes--; return s.refresh(n) }, n)
	}
}

// flies tells whether there is a read that newcomers join, or one in the background.
func (h *host) flies(background u8) bool {
	for i := range h.flying {
		f := &h.flying[i]
		if f.phase != 0 && f.refresh == 0 && f.background == background && (background == 1 || f.shared == 1) {
			return true
		}
	}
	return false
}

// takeOff begins a reading.
func (s *step) takeOff(n u8, f reading) (slot u8, ok bool) {
	h := &s.hosts[n]
	for i := range h.flying {
		if h.flying[i].phase == 0 {
			f.gone, f.soft, f.bound, f.boundSoft = h.gone, h.soft, s.gone[2], s.soft[2]
			h.flying[i] = f
			return u8(i), true
		}
	}
	return 0, false
}

func (s *step) get(n u8) bool {
	i, ok := s.takeOff(n, reading{phase: flyGet, shared: 1, held: s.hosts[n].copy})
	return ok && s.first(n, i)
}

// first reads in the cheapest way that can be enough, as flight.look does.
func (s *step) first(n, i u8) bool {
	f := &s.hosts[n].flying[i]
	f.phase = flyGet
	if f.held.has != 0 {
		if f.held.at() == Stale && s.hosts[n].joined == 0 {
			return s.try(n, i)
		}
		if f.held.version != 0 {
			f.phase = flyHeader
		}
	}
	s.sends(f)
	return true
}

// sends is the instant from which what is asked now will be believed.
func (s *step) sends(f *reading) {
	f.sent, f.old, f.answer = 0, 0, answer{}
}

// tend is background work on a copy that was served.
func (s *step) tend(n u8, early bool) bool {
	h := &s.hosts[n]
	i, ok := s.takeOff(n, reading{phase: flyGet, background: 1, held: h.copy})
	switch {
	case !ok:
		return false
	case !early:
		return s.first(n, i)
	case h.joined != 0:
		return false
	}
	h.flying[i].bar = h.copy.version + 1
	return s.try(n, i)
}

// refresh asks for a load that begins now or later: the first answer fixes the bar.
func (s *step) refresh(n u8) bool {
	i, ok := s.takeOff(n, reading{refresh: 1, bar: forEver, turn: s.hosts[n].nextTurn()})
	if !ok {
		return false
	}
	f := &s.hosts[n].flying[i]
	f.gone = s.db // what the load must have seen
	return s.try(n, i)
}

func (s *step) try(n, i u8) bool {
	f := &s.hosts[n].flying[i]
	f.phase, f.token, f.twice = flyTry, s.unused(), 0
	s.sends(f)
	c, _ := s.commandOfReading(n, i)
	return s.send(c)
}

// ask asks again in mode wait: whoever ends the lease from now on tells.
func (s *step) ask(n, i u8) bool {
	f := &s.hosts[n].flying[i]
	f.phase, f.woken, f.token = flyAsk, 0, s.unused()
	f.excused = 1 // until Redis has the flag
	s.sends(f)
	c, _ := s.commandOfReading(n, i)
	return s.send(c)
}

func (s *step) commandOfReading(n, i u8) (c command, ok bool) {
	f := &s.hosts[n].flying[i]
	c = command{kind: sendAcquire, host: n, owner: ofReading, slot: i, token: f.token, bar: f.bar, mode: modeTry}
	if f.phase == flyAsk {
		c.mode = modeWait
	}
	return c, f.phase == flyTry || f.phase == flyAsk
}

// changed is what a poll of the header sees.
func (x *walker) changed(f *reading) bool {
	return x.rules&polling == 0 && (x.from.redis.token != f.holder || !x.from.redis.leased())
}

// look executes a plain read.
func (s *step) look(n, i u8) bool {
	s.hosts[n].flying[i].answer = answer{came: fine, cell: s.redis}
	return true
}

// receive goes on with what came back.
func (s *step) receive(n, i u8) bool {
	h := &s.hosts[n]
	f := &h.flying[i]
	a := f.answer
	leased := false
	if f.phase == flyTry {
		leased = a.came == fine && statuses[a.status] == statusLeased
		if ok := s.doubt(n, f, leased, a); !ok {
			return false
		}
	}
	f.answer = answer{}
	switch {
	case a.came == silence && f.refresh != 0: // goes on alone: not here
		s.land(n, i)
		return true
	case a.came == silence:
		return s.unanswered(n, i)
	}
	seen := sight{view: a.cell.view(s.now())}
	seen.obey(statuses[a.status])
	v := seen.view
	if f.phase == flyHeader && v.State.value() && !s.sameIdentity(f, &a.cell) {
		f.phase = flyGet
		s.sends(f)
		return true
	}
	if v.State.value() {
		f.held = s.seen(f, &a.cell)
	}
	if f.refresh == 1 && f.bar == forEver {
		if f.bar = rank(s.now()); s.off(refreshBar) {
			f.bar = 0
		}
	}
	if f.background == 1 {
		return s.settle(n, i, v, a.cell, leased)
	}
	return s.act(n, i, v, a.cell, leased)
}

// doubt gives back a token under which a lease may come to be that nobody knows of.
func (s *step) doubt(n u8, f *reading, leased bool, a answer) bool {
	switch {
	case a.came == silence && s.off(unknownFate):
	case a.came == silence:
		return s.giveBack(n, unsure{token: f.token, stage: giveNow})
	case f.twice != 0 && leased:
		return s.giveBack(n, unsure{token: f.token, except: a.cell.start, stage: giveWaits})
	case f.twice != 0:
		return s.giveBack(n, unsure{token: f.token, stage: giveWaits})
	}
	return true
}

// sameIdentity verifies what is held by a header.
func (s *step) sameIdentity(f *reading, c *cell) bool {
	return s.off(verifyIdentity) || f.held.version == c.version && f.held.writer == c.writer
}

// seen is the copy of what may be served: with the windows of the header, whoever has the value.
func (s *step) seen(f *reading, c *cell) localCopy {
	l := localCopy{has: 1, value: c.value, version: c.version, writer: c.writer, row: c.row,
		fresh: c.fresh, stale: c.stale, ifError: c.ifError, age: f.sent, old: f.old}
	if s.off(readFromSending) {
		l.age = 0
	}
	if f.phase == flyHeader {
		l.value = f.held.value
		if s.off(verifyWindows) {
			l.fresh, l.stale, l.ifError = f.held.fresh, f.held.stale, f.held.ifError
		}
	}
	return l
}

// act does what was decided, as flight.act does.
func (s *step) act(n, i u8, v View, c cell, leased bool) bool {
	f := &s.hosts[n].flying[i]
	want := anything
	if f.refresh == 1 {
		want = onlyFresh
	}
	d := Decide(v, want)
	switch {
	case leased:
		return s.lead(n, i, d, c)
	case d.Deed == Serve:
		s.serve(n, i)
		return true
	case d.Deed == Refuse:
		s.land(n, i)
		return true
	case d.Deed == Beside:
		return s.beside(n, i)
	case f.refresh == 0 && s.joins(n) != 0:
		f.phase, f.job = flyAwait, s.joins(n)
		return true
	case d.Deed == Await && f.phase == flyAsk:
		f.phase = flySleep
		return true
	case d.Deed == Await:
		f.phase, f.woken, f.excused = flySleep, 1, 1 // the confirmation of the subscription wakes
		f.holder, f.since = c.token, c.start
		return true
	}
	return s.try(n, i)
}

// settle does what the entry turned out to need for a copy that was served already.
func (s *step) settle(n, i u8, v View, c cell, leased bool) bool {
	h := &s.hosts[n]
	f := &h.flying[i]
	switch {
	case leased:
		if !s.launch(n, i, c.token, c.start, 1) {
			return false
		}
	case v.State == Gone || v.State == Pass:
		if f.void == 0 && f.held.version != 0 {
			h.copy = localCopy{}
		}
	case v.State == Fresh:
		s.keep(n, f, f.held)
	case f.phase != flyTry && sight{view: v}.due():
		if s.joins(n) == 0 {
			return s.try(n, i)
		}
	}
	s.land(n, i)
	return true
}

// serve answers with what is in Redis, and keeps it.
func (s *step) serve(n, i u8) {
	f := &s.hosts[n].flying[i]
	s.keep(n, f, f.held)
	s.gives(f, f.held, false)
	s.land(n, i)
}

// land ends a reading. After a refresh nobody joins what may be older.
func (s *step) land(n, i u8) {
	h := &s.hosts[n]
	if h.flying[i].refresh != 0 {
		h.takeFlights()
	}
	h.flying[i] = reading{}
}

// unanswered goes on when Redis did not answer: by the copy as far as its windows go, else by a load.
func (s *step) unanswered(n, i u8) bool {
	h := &s.hosts[n]
	f := &h.flying[i]
	if h.copy.has != 0 {
		f.held = h.copy
	}
	v := View{Backoff: h.remembers != 0 && !s.off(memory)}
	if f.held.has != 0 {
		v.State = f.held.at()
	}
	if f.background == 1 {
		if (s.joins(n) == 0 || s.off(joining)) && h.remembers == 0 {
			if !s.launch(n, i, 0, 0, 1) {
				return false
			}
		}
		s.land(n, i)
		return true
	}
	switch Decide(v, anything).Deed {
	case Serve:
		s.gives(f, f.held, true)
		s.land(n, i)
		return true
	case Refuse:
		s.land(n, i)
		return true
	}
	return s.beside(n, i)
}

// beside loads without a lease: what this node knows by itself comes first.
func (s *step) beside(n, i u8) bool {
	h := &s.hosts[n]
	f := &h.flying[i]
	switch {
	case s.joins(n) != 0 && !s.off(joining):
		f.phase, f.job = flyAwait, s.joins(n)
		return true
	case h.remembers != 0 && !s.off(memory):
		s.land(n, i)
		return true
	}
	if h.remembers != 0 {
		s.breaks("P8: a load is begun though this node remembers a failure")
	}
	return s.launch(n, i, 0, 0, 0)
}

// lead loads under the lease that was granted. What may be served meanwhile is.
func (s *step) lead(n, i u8, d Verdict, c cell) bool {
	f := &s.hosts[n].flying[i]
	if d.Deed != Serve {
		return s.launch(n, i, c.token, c.start, 0)
	}
	if !s.launch(n, i, c.token, c.start, 1) {
		return false
	}
	f.phase = flyTry
	s.serve(n, i)
	return true
}

// gives judges what callers are given. alone is for what a node serves that Redis does not answer.
func (s *step) gives(f *reading, c localCopy, alone bool) {
	if f.background == 1 || s.excuses(c.fresh, c.stale, c.ifError) {
		return
	}
	switch {
	case c.value < f.gone && f.refresh == 1:
		s.breaks("Refresh returns what was read before it was called")
	case c.value < f.gone:
		s.breaks("P5: a Get returns what its node knows to be gone")
	case c.value < f.bound && !alone:
		s.breaks("P5: a Get returns what has been gone for longer than the bound")
	}
	if fresh := c.fresh != 0; fresh && (c.value < f.soft || c.value < f.boundSoft && !alone) {
		s.breaks("a Get returns as fresh what was expired before it began")
	}
}

// excuses what a lagging replica may have shown: as long as it lags, and what ends with the hold-down.
func (s *step) excuses(fresh, stale, ifError u8) bool {
	return s.holdDown && (s.lag != 0 || max(fresh, stale, ifError) <= atHoldDown)
}
