package rebuild

import "context"

// Peek answers with what is cached: in this node's memory, else in Redis. It never loads and
// joins no load; ok is false if nothing may be served.
func (n *Node) Peek(ctx context.Context, k Key) (a Answer, ok bool, err error) {
	if n.life.ended() {
		return Answer{}, false, ErrClosed
	}
	f := n.newFlight(ctx, k, false)
	defer n.running.end(f.ticket)
	if f.hold(n.values.Lookup(k)); f.held != nil {
		m := f.held.Meta()
		if state := m.At(n.clock.Now()); state != Gone && n.Believes(m, n.clock.Now()) {
			return Answer{Copy: f.held, Source: Local, State: state}, true, nil
		}
	}
	if n.server.link == nil {
		return f.peekAlone(nil)
	}
	s, err := f.ask(Look)
	switch {
	case ctx.Err() != nil:
		return Answer{}, false, ctx.Err()
	case err != nil:
		n.noteRedis(k, err)
		return f.peekAlone(err)
	case s.copy == nil:
		return Answer{}, false, nil
	}
	n.running.keep(f.ticket, func() { n.values.Keep(k, s.copy) })
	return Answer{Copy: s.copy, Source: Remote, State: s.view.State}, true, nil
}

// peekAlone answers from memory as far as the windows go. why is returned where that does not
// answer: then it is not known whether Redis holds something.
func (f *flight) peekAlone(why error) (Answer, bool, error) {
	s := f.recall()
	if s.copy == nil || s.view.State == Gone {
		return Answer{}, false, why
	}
	return Answer{Copy: s.copy, Source: Local, State: s.view.State, Err: why}, true, nil
}
