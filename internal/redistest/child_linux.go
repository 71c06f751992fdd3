package redistest

import (
	"os/exec"
	"syscall"
)

// dieWithParent has the kernel kill the process when this one ends, however.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
