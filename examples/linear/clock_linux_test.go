package linear

import (
	"syscall"
	"time"
	"unsafe"
)

// now is the time of CLOCK_MONOTONIC, which all processes of a machine share: it is the same for a
// node that has been paused, and for one that has been started again.
func now() time.Duration {
	const monotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic(errno)
	}
	return time.Duration(ts.Nano())
}
