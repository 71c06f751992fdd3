package loader

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound is returned by a loader, also wrapped, for a record that does not
	// exist. Caches remember it for their NegativeTTL and return it to every caller; it
	// is a result, not a failure.
	ErrNotFound = errors.New("loader: not found")

	// ErrGoexit is what callers get when a load function ended its goroutine with
	// [runtime.Goexit] instead of returning, as testing's FailNow does. The key can be
	// loaded again after its back-off.
	ErrGoexit = errors.New("loader: load function called runtime.Goexit")
)

// PanicError is what callers get when a load function panicked. All callers that waited
// for the load share it. The key can be loaded again after its back-off.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // the stack of the load's goroutine
}

// Error says what the load panicked with, without the stack: it may reach an end user.
func (e *PanicError) Error() string { return fmt.Sprintf("loader: panic: %v", e.Value) }

// Unwrap returns the panic value if it was an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
