package rebuild

import "cmp"

// command is one copy of a script's call in the network. Who sent it may not be waiting for it any
// more: then it is executed at any time, or never.
type command struct {
	kind, host, owner, slot u8
	token, start, bar       u8
	value, row              u8
	mode, late, twice       u8
}

// kinds of commands
const (
	sendAcquire u8 = iota + 1
	sendCommit
	sendSetCommit
	sendFail
	sendPass
	sendDelete
	sendExpire
	sendSeize
	sendMessage
	sendSet // in one step: only a mutant does
)

var commandNames = [...]string{"", "acquire", "commit", "commit of a set", "fail", "pass", "delete", "expire", "seize", "message", "set"}

// owners of commands
const (
	nobody u8 = iota
	ofReading
	ofJob
	ofChange
)

var ownerNames = [...]string{ofReading: "read %d", ofJob: "load %d", ofChange: "the change"}

var modes = [...]Mode{Look, Try, Wait}

const (
	modeTry  u8 = 1
	modeWait u8 = 2
)

func compareCommands(a, b command) int {
	return cmp.Or(cmp.Compare(b.kind, a.kind), cmp.Compare(a.host, b.host), cmp.Compare(a.owner, b.owner), cmp.Compare(a.slot, b.slot),
		cmp.Compare(a.start, b.start), cmp.Compare(a.value, b.value), cmp.Compare(a.mode, b.mode), cmp.Compare(a.late, b.late))
}

// send puts c into the network; false if it is full.
func (s *step) send(c command) bool {
	for i := range s.commands {
		if s.commands[i].kind == 0 {
			s.commands[i] = c
			return true
		}
	}
	return false
}

// network lets commands be executed, repeated and lost.
func (x *walker) network() {
	for i, c := range x.from.commands {
		if c.kind == 0 {
			continue
		}
		name := commandNames[c.kind] + " (token %d)"
		verb := "Redis executes " + name
		if c.owner == nobody {
			verb = "Redis executes, though nobody waits for it any more, " + name
		}
		x.does(verb, func(s *step) bool { s.commands[i] = command{}; s.execute(c); return true }, c.host, c.token)
		if c.owner == nobody || x.from.left.faults == 0 {
			continue
		}
		x.may("the client sends it again: "+name, func(s *step) bool { return s.again(i) }, c.host, c.token)
		x.may("silence for "+name, func(s *step) bool { return s.silent(i) }, c.host, c.token)
	}
	x.lostAnswers()
	if x.from.left.refuse > 0 {
		x.refused()
	}
}

// again is a blind retry: the first attempt is still on its way, and nobody waits for it.
func (s *step) again(i int) bool {
	s.left.faults--
	c := s.commands[i]
	s.commands[i].owner, s.commands[i].slot = nobody, 0
	s.mark(c)
	return s.send(c)
}

// mark lets the owner know that its command was sent more than once.
func (s *step) mark(c command) {
	h := &s.hosts[c.host]
	switch c.owner {
	case ofReading:
		h.flying[c.slot].twice = 1
	case ofJob:
		h.jobs[c.slot].twice = 1
	case ofChange:
		h.change.twice = 1
	}
}

// silent lets the owner give up; the command stays in the network.
func (s *step) silent(i int) bool {
	s.left.faults--
	c := s.commands[i]
	s.commands[i].owner, s.commands[i].slot = nobody, 0
	*s.answerOf(c) = answer{came: silence}
	return true
}

func (w *world) answerOf(c command) *answer {
	h := &w.hosts[c.host]
	switch c.owner {
	case ofReading:
		return &h.flying[c.slot].answer
	case ofJob:
		return &h.jobs[c.slot].answer
	}
	return &h.change.answer
}

// lostAnswers are of commands that were executed: the caller gives up, or the client repeats them.
func (x *walker) lostAnswers() {
	if x.from.left.faults == 0 {
		return
	}
	for n := range u8(x.nodes) {
		h := &x.from.hosts[n]
		for i := range h.flying {
			x.loses(command{host: n, owner: ofReading, slot: u8(i)}, &h.flying[i].answer)
		}
		for i := range h.jobs {
			x.loses(command{host: n, owner: ofJob, slot: u8(i)}, &h.jobs[i].answer)
		}
		x.loses(command{host: n, owner: ofChange}, &h.change.answer)
	}
}

func (x *walker) loses(c command, a *answer) {
	if a.came != fine {
		return
	}
	name := " to " + ownerNames[c.owner]
	x.may("the answer"+name+" is lost", func(s *step) bool {
		s.left.faults--
		*s.answerOf(c) = answer{came: silence}
		return true
	}, c.host, c.slot)
	x.may("the answer"+name+" is lost, the client sends it again", func(s *step) bool {
		s.left.faults--
		repeated, ok := s.repeated(c)
		*s.answerOf(c) = answer{}
		s.mark(c)
		return ok && s.send(repeated)
	}, c.host, c.slot)
}

// repeated is the command that an owner waits for, once more. Reads have none: they change nothing.
func (s *step) repeated(c command) (command, bool) {
	h := &s.hosts[c.host]
	switch c.owner {
	case ofReading:
		return s.commandOfReading(c.host, c.slot)
	case ofJob:
		return s.commandOfJob(c.host, c.slot), h.jobs[c.slot].phase >= jobSends
	}
	return s.commandOfChange(c.host), true
}

// refused commits are those for which the server has no memory.
func (x *walker) refused() {
	for i, c := range x.from.commands {
		if c.kind != sendCommit || c.owner != ofJob {
			continue
		}
		x.may("Redis is full and refuses the commit", func(s *step) bool {
			s.left.refuse--
			*s.answerOf(c) = answer{came: noMemory}
			s.commands[i] = command{}
			return true
		}, c.host)
	}
}
