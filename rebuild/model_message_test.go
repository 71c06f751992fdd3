package rebuild

// append puts a message into the stream: who hears gets it in order, who is deaf never.
func (s *step) append(c command) {
	for n := range u8(s.nodes) {
		h := &s.hosts[n]
		if n == c.host || h.stream == deaf || h.stream == knows {
			continue
		}
		for i := range h.unread {
			if h.unread[i].kind == 0 {
				h.unread[i] = notice{kind: c.mode, value: c.value}
				break
			}
		}
	}
	if c.owner == ofChange {
		*s.answerOf(c) = answer{came: fine}
	}
}

// hearing delivers messages, and loses them.
func (x *walker) hearing(n u8, h *host) {
	if !x.messages {
		return
	}
	switch h.stream {
	case hears:
		if h.unread[0].kind != 0 {
			x.does("the message of %d arrives", func(s *step) bool { s.arrives(n); return true }, n, h.unread[0].value)
		}
		if x.from.left.cuts > 0 {
			x.may("the stream is cut", func(s *step) bool {
				s.left.cuts--
				h := &s.hosts[n]
				h.stream, h.unread = deaf, [maxUnread]notice{}
				return true
			}, n)
		}
	case deaf, knows:
		x.does("the reader takes the last id", func(s *step) bool {
			s.hosts[n].stream++ // deafID, or hasID
			if s.off(idFirst) {
				s.raises(n)
				s.hosts[n].stream = knows // misses what comes before it has the id
			}
			return true
		}, n)
		if x.rules&idFirst != 0 {
			x.does("the reader hears again", func(s *step) bool { s.hosts[n].stream = hears; return true }, n)
		}
	case deafID, hasID:
		x.does("the reader raises its epoch", func(s *step) bool { s.raises(n); s.hosts[n].stream = hears; return true }, n)
	}
}

// arrives does what Delete does on its own node.
func (s *step) arrives(n u8) {
	h := &s.hosts[n]
	m := h.unread[0]
	copy(h.unread[:], h.unread[1:])
	h.unread[maxUnread-1] = notice{}
	if s.off(messageVoids) {
		h.copy = localCopy{}
	} else {
		s.forget(n)
	}
	h.hears(m.kind, m.value)
}

// raises the epoch: nothing from before is believed until it has been verified.
func (s *step) raises(n u8) {
	h := &s.hosts[n]
	if s.off(epoch) {
		return
	}
	h.copy.old = h.copy.has
	for i := range h.flying {
		f := &h.flying[i]
		f.held.old = f.held.has
		if f.phase != 0 && !s.off(oldReads) {
			f.old = 1
		}
	}
	for i := range h.jobs {
		j := &h.jobs[i]
		j.beganOld = min(j.phase, 1)
		if j.phase >= jobSends {
			j.sentOld = 1
		}
	}
	if h.change.phase == changeCommits {
		h.change.sentOld = 1
	}
}
