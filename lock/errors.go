package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

var (
	// ErrBusy is returned by TryLock if somebody else has the lock, or waits for it and comes first.
	// The error is a [*BusyError].
	ErrBusy = errors.New("lock: somebody else has it")
	// ErrWaitTimeout is returned if the lock was not free within [WithWait]. The error is a [*TimeoutError].
	ErrWaitTimeout = errors.New("lock: not free within the time to wait")
	// ErrUnavailable is returned if Redis did not answer, or would not do what was asked, being full say.
	// Nobody is known to have the lock, and nothing is left behind: what may still arrive in Redis is
	// refused there, or given back.
	ErrUnavailable = link.ErrUnavailable
	// ErrNotReplicated is returned if fewer replicas than [WithReplicas] asks for have confirmed the lock in time. It has been
	// given back. The error is a [*NotReplicatedError].
	ErrNotReplicated = errors.New("lock: too few replicas have confirmed it")
	// ErrConflict is returned if the key holds what is no lock. It is left alone: choose another name,
	// or prefix, or remove the key.
	ErrConflict = errors.New("lock: the key holds something else")
	// ErrLost is the cause of a lease that ended before it was given back: stop the work, somebody else
	// may have begun his. The error is a [*LostError].
	ErrLost = errors.New("lock: the lease was lost")
	// ErrMaxHold is the cause of a context that ended since the lock was held for as long as
	// [WithMaxHold] allows. The lock is still ours until it is given back, or until the lease ends.
	ErrMaxHold = errors.New("lock: held for as long as it may be")
	// ErrReleased is the cause of a lease that its holder gave back.
	ErrReleased = errors.New("lock: the lease was released")
	// ErrClosed is returned by a Locker that was closed, and is the cause of the leases it held.
	ErrClosed = errors.New("lock: closed")
)

// BusyError says who has the lock.
type BusyError struct {
	Name      string
	Holder    Holder
	Fence     int64         // of the holder
	Held      time.Duration // for how long by now
	Remaining time.Duration // of its lease, unless it is renewed
	Waiting   int           // processes in the queue
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("lock %q: %v has it since %v", e.Name, e.Holder, e.Held)
}

// Is makes it an [ErrBusy].
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// TimeoutError says for whom a caller has waited in vain.
type TimeoutError struct {
	Name string
	Busy *BusyError // what was heard last; nil if the wait was for others of this process only
}

func (e *TimeoutError) Error() string {
	if e.Busy == nil {
		return fmt.Sprintf("%v: %q", ErrWaitTimeout, e.Name)
	}
	return fmt.Sprintf("%v: %v", ErrWaitTimeout, e.Busy)
}

// Is makes it an [ErrWaitTimeout].
func (e *TimeoutError) Is(target error) bool { return target == ErrWaitTimeout }

// NotReplicatedError says how many replicas have confirmed a lock.
type NotReplicatedError struct {
	Name          string
	Acked, Wanted int
	Refused       error // the server's answer to WAIT, if it does not know it or does not allow it
}

func (e *NotReplicatedError) Error() string {
	if e.Refused != nil {
		return fmt.Sprintf("lock %q: WithReplicas needs the command WAIT, which the server refuses: %v", e.Name, e.Refused)
	}
	return fmt.Sprintf("lock %q: %d of %d replicas have confirmed it in time", e.Name, e.Acked, e.Wanted)
}

// Is makes it an [ErrNotReplicated].
func (e *NotReplicatedError) Is(target error) bool { return target == ErrNotReplicated }

// Unwrap is what the server said, if it refused.
func (e *NotReplicatedError) Unwrap() error { return e.Refused }

// Reason is why a lease was lost.
type Reason string

// The reasons.
const (
	Expired     Reason = "it ran out"
	ClockStep   Reason = "the clock of redis was set"
	Unreachable Reason = "redis could not be reached to renew it"
	Taken       Reason = "somebody else has it"
	Gone        Reason = "it is no longer in redis"
	Broken      Reason = "it was broken"
	Overwritten Reason = "its key holds something else"
)

// LostError says why a lease was lost.
type LostError struct {
	Name   string
	Fence  int64 // of the lease
	Reason Reason
	By     int64 // if Taken: the fence of who has it now
}

func (e *LostError) Error() string {
	return fmt.Sprintf("lock %q: the lease %d was lost: %s", e.Name, e.Fence, e.Reason)
}

// Is makes it an [ErrLost], and one whose key holds something else an [ErrConflict] too.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || target == ErrConflict && e.Reason == Overwritten
}

// lostBecause turns what the renewal says into what holders are told.
func lostBecause(why error) error {
	switch {
	case errors.Is(why, link.ErrExpired):
		return &LostError{Reason: Expired}
	case errors.Is(why, link.ErrTaken):
		return &LostError{Reason: Taken}
	case errors.Is(why, link.ErrHeldTooLong):
		return ErrMaxHold
	}
	return why
}

// leaving is the error of a caller whose context has ended.
func leaving(ctx context.Context, name string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrWaitTimeout):
		return cause
	case errors.Is(cause, err):
		return fmt.Errorf("lock %q: %w", name, cause)
	}
	return fmt.Errorf("lock %q: %w: %w", name, err, cause)
}
