package rebuild

// judge looks at what an entry was loaded under. Ended by Clear or by a tag, it is as good as gone, though
// Redis calls it fresh; softened by a tag, it is stale. It must be replaced either way.
func (f *flight) judge(s *sight, stamp *Stamp) error {
	if !s.view.State.value() && s.view.State != NotFound {
		return nil
	}
	m, err := f.loadedUnder(s)
	if m == nil || err != nil {
		return err
	}
	f.n.under(stamp, m.space, m.marks)
	state := s.view.State
	switch {
	case m.space != f.n.space.hard.Load() || stamp.ended():
		state, s.over = Gone, true
		f.held = nil
	case !stamp.current():
		*stamp = stamp.marked()
		state = stamp.At(f.n.clock.Now())
	}
	if state != s.view.State {
		s.view.State = state
		f.bar = max(f.bar, s.entry.Version+1)
	}
	return nil
}

// loadedUnder returns a stamp with the generations that the entry carries, all of them known to this
// node; nil if only the header was read, of something that this node does not have.
func (f *flight) loadedUnder(s *sight) (*Stamp, error) {
	n := f.n
	m := &Stamp{}
	switch c, ok := parseCarried(s.entry.Carried); {
	case f.held != nil && f.held.Meta().Identity == s.entry.Identity:
		m.space, m.marks = f.held.Meta().space, f.held.Meta().marks
	case s.entry.Carried == "" && s.entry.Variable > 0:
		return nil, nil
	case !ok:
		m.space = -1 // matches nothing
		return m, nil
	default:
		m.space = c.space
		for _, t := range c.tags {
			m.marks = append(m.marks, mark{n.tag(t.text), t.hard, t.soft})
		}
	}
	if err := n.learn(f.ctx, &f.budget, n.generations(m.marks)...); err != nil {
		return nil, err
	}
	return m, f.doubt(s, m)
}

// doubt asks again for generations that an entry differs from: what it carries may be newer than what
// this node has heard.
func (f *flight) doubt(s *sight, m *Stamp) error {
	var gs []*generation
	if m.space > f.n.space.hard.Load() {
		gs = append(gs, f.n.space)
	}
	for _, k := range m.marks {
		if k.hard > k.of.hard.Load() || k.soft > k.of.soft.Load() {
			gs = append(gs, k.of)
		}
	}
	return f.n.learnAgain(f.ctx, &f.budget, gs...)
}
