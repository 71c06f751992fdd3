//go:build unix

package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

// pause returns when the process has stopped, where the system tells: its threads go on for a moment
// after the signal.
func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	poll(startTimeout, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
		_, state, _ := bytes.Cut(stat, []byte(") "))
		return err != nil || bytes.HasPrefix(state, []byte("T"))
	})
	return nil
}

func resume(p *os.Process) error    { return p.Signal(syscall.SIGCONT) }
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
