package lock

import (
	"fmt"
	"math"

	"github.com/anishathalye/porcupine"
)

// step is one command that a client has sent: what it asked for.
type step struct {
	kind     kindOfStep
	key      string
	token    string
	lease    int64 // ms
	notAfter int64 // µs; 0: never too late
	fence    int64 // that is left over
}

type kindOfStep string

const (
	toAcquire kindOfStep = "acquire"
	toRenew   kindOfStep = "renew"
	toRelease kindOfStep = "release"
	toDelete  kindOfStep = "DEL" // by somebody else: an eviction, a failover, a hand
	toSeed    kindOfStep = "SET" // what was left by a server whose clock was ahead
)

// outcome is what a client was told; unknown if it was told nothing.
type outcome struct {
	unknown bool
	answer
}

// lockState is what is known of a lock between two commands. It is less than the scripts keep: nothing of the
// queue, so whom a lock was passed on to shows when he says so.
type lockState struct {
	owner     string // also after the lease has ended, until somebody else comes
	released  string // who gave it back last
	low, high int64  // ms: the lease ends within
	fence     span   // that the server remembers
	floor     int64  // no later lease may have this fence, or a lower one, also if the server remembers none
	now       int64  // µs: the server's time cannot be before
}

// span is where a number lies.
type span struct{ low, high int64 }

const (
	someone = "?" // an owner who was in the queue
	anytime = math.MaxInt64 / 2
)

func at(n int64) span { return span{n, n} }

// next is where the fence of the next lease lies, that begins in us.
func (s span) next(us span) span {
	return span{max(s.low+1, us.low), max(s.high+1, us.high)}
}

func (s span) holds(n int64) bool { return s.low <= n && n <= s.high }

// linear says which histories of locks are legal: a lock is busy only if somebody may have it, is had only if nobody must,
// its lease goes on only for its owner, ends only by him, and each lease has a greater fence than all before.
var linear = (&porcupine.NondeterministicModel{
	Partition: byKey,
	Init:      func() []any { return []any{lockState{}} },
	Step: func(state, input, output any) []any {
		return anyStates(state.(lockState).after(input.(step), output.(outcome)))
	},
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v: %+v", input, output)
	},
}).ToModel()

func anyStates(states []lockState) (all []any) {
	for _, s := range states {
		all = append(all, s)
	}
	return all
}

func byKey(history []porcupine.Operation) (parts [][]porcupine.Operation) {
	where := map[string]int{}
	for _, op := range history {
		key := op.Input.(step).key
		i, ok := where[key]
		if !ok {
			i = len(parts)
			where[key], parts = i, append(parts, nil)
		}
		parts[i] = append(parts[i], op)
	}
	return parts
}

// after is what may be the case when the command has been executed, or may not have been; nothing if that cannot be what was
// answered.
func (s lockState) after(do step, o outcome) []lockState {
	switch {
	case do.kind == toDelete:
		s.owner, s.released, s.fence = "", "", span{}
		return []lockState{s}
	case do.kind == toSeed:
		return []lockState{{fence: at(do.fence), floor: do.fence}}
	case o.unknown:
		return append(s.perhaps(do), s)
	case o.micros < s.now:
		return nil
	}
	s.now = o.micros
	switch do.kind {
	case toAcquire:
		return s.acquire(do, o.answer)
	case toRenew:
		return s.renew(do, o.answer)
	}
	return s.release(do, o.answer)
}

// had is s with an owner of a lease that begins in us.
func (s lockState) had(owner string, lease int64, us span) lockState {
	s.owner, s.fence = owner, s.fence.next(us)
	s.floor = max(s.floor, s.fence.low)
	return s.lasting(lease, us)
}

// lasting is s with the lease begun anew.
func (s lockState) lasting(lease int64, us span) lockState {
	s.low, s.high = us.low/1000+lease, us.high
	if us.high != anytime {
		s.high = us.high/1000 + lease
	}
	return s
}

// is tells whether owner may be token.
func (s lockState) is(token string) bool { return s.owner == token || s.owner == someone }

// mayLast and mayBeOver tell what may be the case at us.
func (s lockState) mayLast(us int64) bool   { return s.owner != "" && us/1000 < s.high }
func (s lockState) mayBeOver(us int64) bool { return s.owner == "" || us/1000 >= s.low }

// passed is s with the lock passed on to somebody in the queue.
func (s lockState) passed(us span) lockState { return s.had(someone, claim.Milliseconds(), us) }

// freed is s without an owner.
func (s lockState) freed(by string) lockState {
	s.owner, s.released = "", by
	return s
}

// fenced is s, and nothing if it does not have this fence.
func (s lockState) fenced(fence, above int64) []lockState {
	if !s.fence.holds(fence) || fence <= above {
		return nil
	}
	s.fence, s.floor = at(fence), max(s.floor, fence)
	return []lockState{s}
}

func (s lockState) acquire(do step, a answer) (next []lockState) {
	us := at(a.micros)
	if late := do.notAfter > 0 && a.micros > do.notAfter; late != (a.status == statusLate) {
		return nil
	}
	switch a.status {
	case statusLate:
		return []lockState{s}
	case statusAbandoned:
		if s.released == do.token {
			return []lockState{s}
		}
	case statusAcquired:
		if a.int(1) != a.micros/1000+do.lease {
			return nil
		}
		if s.is(do.token) && s.mayLast(a.micros) {
			again := s.lasting(do.lease, us)
			again.owner = do.token
			next = append(next, again.fenced(a.int(0), 0)...)
		}
		if s.mayBeOver(a.micros) && s.released != do.token {
			next = append(next, s.had(do.token, do.lease, us).fenced(a.int(0), s.floor)...)
		}
	case statusBusy:
		next = s.busy(do, a)
	}
	return next
}

// busy tightens what is known by what was told of the lease.
func (s lockState) busy(do step, a answer) (next []lockState) {
	ends := a.micros/1000 + a.int(0)
	if s.owner != do.token && s.mayLast(a.micros) && a.int(0) > 0 && s.low <= ends && ends <= s.high {
		same := s
		same.low, same.high = ends, ends
		next = append(next, same.fenced(a.int(3), 0)...)
	}
	if s.mayBeOver(a.micros) && a.int(0) == claim.Milliseconds() {
		next = append(next, s.passed(at(a.micros)).fenced(a.int(3), s.floor)...)
	}
	return next
}

func (s lockState) renew(do step, a answer) []lockState {
	held := s.is(do.token) && s.mayLast(a.micros)
	switch {
	case a.status == statusHeld && held && a.int(0) == a.micros/1000+do.lease:
		s.owner = do.token
		return []lockState{s.lasting(do.lease, at(a.micros))}
	case a.status == statusLost && (s.owner != do.token || s.mayBeOver(a.micros)):
		return []lockState{s}
	}
	return nil
}

func (s lockState) release(do step, a answer) (next []lockState) {
	switch {
	case a.status != statusReleased:
		if s.owner != do.token && s.released != do.token {
			next = append(next, s)
		}
		return next
	case s.is(do.token) && a.int(0) == 1:
		next = append(next, s.freed(do.token).passed(at(a.micros)))
	case s.is(do.token):
		next = append(next, s.freed(do.token))
	}
	if s.released == do.token && a.int(0) == 0 {
		next = append(next, s)
	}
	return next
}

// perhaps is what may be the case if a command without an answer was executed, at any time.
func (s lockState) perhaps(do step) (next []lockState) {
	us := span{s.now, anytime}
	if do.notAfter > 0 {
		us.high = do.notAfter
	}
	switch {
	case do.notAfter > 0 && s.now > do.notAfter:
		return nil
	case do.kind == toRelease && s.is(do.token):
		return append(next, s.freed(do.token), s.freed(do.token).passed(us))
	case do.kind == toRenew && s.is(do.token):
		s.owner = do.token
		return append(next, s.lasting(do.lease, us))
	case do.kind != toAcquire:
		return nil
	case s.is(do.token):
		again := s
		again.owner = do.token
		next = append(next, again.lasting(do.lease, us))
	}
	if s.mayBeOver(us.high) {
		next = append(next, s.had(do.token, do.lease, us), s.passed(us))
	}
	return next
}
