package redistest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// nodeVar selects the function that a started test binary runs.
const nodeVar = "LEVEE_REDISTEST_NODE"

// Proc is a node as a process of its own. Its methods fail the test by
// themselves, so they are called from the test's goroutine.
type Proc struct {
	t     TB
	name  string
	child *child
	in    io.WriteCloser
	out   lines
	errs  lines
}

// Process starts this test binary again, to run the function that [Main] knows
// as name, with env ("K=V") added to the environment. The process is killed
// when the test ends, and dies if the test binary does.
func Process(t TB, name string, env ...string) *Proc {
	t.Helper()
	p := &Proc{t: t, name: name}
	if err := p.start(env); err != nil {
		t.Fatalf("redistest: start node %q: %v", name, err)
	}
	t.Cleanup(p.cleanup)
	return p
}

func (p *Proc) start(env []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), env...), nodeVar+"="+p.name)
	cmd.Stdout, cmd.Stderr = &p.out, &p.errs
	cmd.WaitDelay = 5 * time.Second
	if p.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	p.child, err = startChild(cmd)
	return err
}

func (p *Proc) cleanup() {
	p.child.kill()
	if text := p.errs.text(); p.t.Failed() && text != "" {
		p.t.Logf("node %q wrote to stderr:\n%s", p.name, text)
	}
}

// Send writes one line to the node's standard input.
func (p *Proc) Send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatalf("node %q: send %q: %v", p.name, line, err)
	}
}

// CloseInput ends the node's standard input, which ends [Input].
func (p *Proc) CloseInput() { _ = p.in.Close() }

// Line returns the next line that the node prints, without its end. The test
// fails if none comes within timeout.
func (p *Proc) Line(timeout time.Duration) string {
	p.t.Helper()
	line, err := p.line(timeout)
	if err != nil {
		p.t.Fatalf("node %q: %v\nstderr:\n%s", p.name, err, p.errs.text())
	}
	return line
}

func (p *Proc) line(timeout time.Duration) (string, error) {
	late := time.NewTimer(timeout)
	defer late.Stop()
	for {
		ended := p.child.ended() // asked first: nothing is printed after it
		line, ok, more := p.out.next()
		switch {
		case ok:
			return line, nil
		case ended:
			return "", fmt.Errorf("ended without printing a line: %v", p.child.cmd.ProcessState)
		}
		select {
		case <-more:
		case <-p.child.done:
		case <-late.C:
			return "", fmt.Errorf("printed no line within %v", timeout)
		}
	}
}

// Ask sends a line and returns the next one that the node prints.
func (p *Proc) Ask(line string, timeout time.Duration) string {
	p.t.Helper()
	p.Send(line)
	return p.Line(timeout)
}

// Pid is the node's process id.
func (p *Proc) Pid() int { return p.child.pid() }

// Kill ends the node at once (SIGKILL) and returns when it has ended.
func (p *Proc) Kill() { p.child.kill() }

// Pause stops the node in its tracks (SIGSTOP).
func (p *Proc) Pause() { p.signal("pause", pause) }

// Resume undoes Pause.
func (p *Proc) Resume() { p.signal("resume", resume) }

func (p *Proc) signal(what string, f func(*os.Process) error) {
	p.t.Helper()
	if err := f(p.child.cmd.Process); err != nil {
		p.t.Fatalf("node %q: %s: %v", p.name, what, err)
	}
}

// Wait returns when the node has ended, with the error of exec.Cmd.Wait: nil if
// its function returned.
func (p *Proc) Wait() error {
	<-p.child.done
	return p.child.err
}
