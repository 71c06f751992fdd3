package redistest

import (
	"os/exec"
	"runtime"
	"time"
)

// ChildGoroutine names the function in which a goroutine waits for a process of
// this package. A test that checks for leaked goroutines by itself while a
// [Shared] server runs passes it to goleak.IgnoreAnyFunction.
const ChildGoroutine = "github.com/levee-cache/levee/internal/redistest.(*child).own"

// child is a process that this one started and that dies with it.
type child struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended and was waited for
	err  error         // how it ended; read only after done
}

func startChild(cmd *exec.Cmd) (*child, error) {
	dieWithParent(cmd)
	c := &child{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go c.own(started)
	return c, <-started
}

// own starts the process and stays with it. It keeps its thread, because Linux
// sends the parent-death signal when the *thread* that started the process ends.
func (c *child) own(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(c.done)
	err := c.cmd.Start()
	started <- err
	if err == nil {
		c.err = c.cmd.Wait()
	}
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// stop asks the process to end, insists after five seconds, and returns when it
// has ended. A paused process is resumed: it could not hear the request.
func (c *child) stop() {
	_ = resume(c.cmd.Process)
	_ = terminate(c.cmd.Process)
	late := time.NewTimer(5 * time.Second)
	defer late.Stop()
	select {
	case <-c.done:
	case <-late.C:
		c.kill()
	}
}

// kill ends the process without letting it do anything, and returns when it has
// ended.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.done
}
