//go:build unix

package main

import (
	"syscall"
	"time"
)

// processorTime is what this process has used of the processors.
func processorTime() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
