package lock

import (
	"errors"
	"fmt"
	"time"
)

var (
	// ErrInProgress is returned by a [Once] for an id that runs elsewhere, if it is not to be waited for. The error
	// is an [*InProgressError].
	ErrInProgress = errors.New("lock: it runs already")
	// ErrNotStored is returned by a [Once] for an id whose function has run, and has succeeded, but whose result is not stored.
	// The error is a [*NotStoredError].
	ErrNotStored = errors.New("lock: it has run, but its result is not stored")
	// ErrRecursive is returned to a function that a [Once] runs, and that asks, with the context it was given, for its own id.
	// Waiting would never end.
	ErrRecursive = errors.New("lock: what runs asks for its own id")
)

// InProgressError says who runs an id.
type InProgressError struct {
	ID        string
	Holder    Holder
	Running   time.Duration // for how long by now
	Remaining time.Duration // of its lease, unless it is renewed
}

func (e *InProgressError) Error() string {
	return fmt.Sprintf("once %q: %v runs it since %v", e.ID, e.Holder, e.Running)
}

// Is makes it an [ErrInProgress].
func (e *InProgressError) Is(target error) bool { return target == ErrInProgress }

// inProgress names a busy lock by what it is for a Once.
func inProgress(id string, err error) error {
	if busy, ok := errors.AsType[*BusyError](err); ok {
		return &InProgressError{ID: id, Holder: busy.Holder, Running: busy.Held, Remaining: busy.Remaining}
	}
	return err
}

// NotStoredError says why the result of a function that has succeeded is not stored. That decides what becomes of its id. If Err is an
//   - [ErrUnavailable], Redis did not answer: storing is tried again until the lease ends, and if that fails too the id may run again;
//   - [ErrLost], the lease had ended before, and somebody else has begun, or Redis has lost it: fn may run twice, or has, and
//     the result of the other counts;
//   - else the result is too long (over 1 MiB), or is no JSON: the id is done, and repeats get this error too, without the value.
type NotStoredError struct {
	ID  string
	Err error
}

func (e *NotStoredError) Error() string {
	return fmt.Sprintf("once %q: it has run, but its result is not stored: %v", e.ID, e.Err)
}

func (e *NotStoredError) Unwrap() error { return e.Err }

// Is makes it an [ErrNotStored].
func (e *NotStoredError) Is(target error) bool { return target == ErrNotStored }
