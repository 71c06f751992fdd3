package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// echoNode repeats what it is sent, and its environment.
func echoNode() {
	Say("ready %s", os.Getenv("WHO"))
	for line := range Input() {
		Say("%s says %s", os.Getenv("WHO"), line)
	}
	Say("bye")
}

// parentNode starts a server and waits to be killed.
func parentNode() {
	s, err := Start(Options{Private: true})
	if err != nil {
		Say("%v", err)
		return
	}
	Say("%s", s.Addr())
	for range Input() {
	}
}

func TestANodeIsAProcessThatTalksInLines(t *testing.T) {
	n := Process(t, "echo", "WHO=ann")
	equal(t, "greeting", n.Line(longEnough), "ready ann")
	equal(t, "answer", n.Ask("hello", longEnough), "ann says hello")
	if n.Pid() == os.Getpid() {
		t.Fatal("it is this process")
	}
	n.CloseInput()
	equal(t, "last words", n.Line(longEnough), "bye")
	must(t, n.Wait())
}

func TestAPausedNodeAnswersAfterItIsResumed(t *testing.T) {
	n := Process(t, "echo", "WHO=ann")
	n.Line(longEnough)
	n.Pause()
	n.Send("hello")
	if line, err := n.line(100 * time.Millisecond); err == nil {
		t.Fatalf("a paused node said %q", line)
	}
	n.Resume()
	equal(t, "answer", n.Line(longEnough), "ann says hello")
}

func TestAKilledNodeEndsWithoutAWord(t *testing.T) {
	n := Process(t, "echo")
	n.Line(longEnough)
	n.Kill()
	var exit *exec.ExitError
	if err := n.Wait(); !errors.As(err, &exit) {
		t.Fatalf("ended with %v", err)
	}
	if line, err := n.line(longEnough); err == nil {
		t.Fatalf("a dead node said %q", line)
	}
}

func TestANodeThatEndsEarlyFailsTheTestWithItsComplaint(t *testing.T) {
	r := record(t, func(t TB) { Process(t, "fails").Line(longEnough) })
	if !strings.Contains(r.fatal, "a complaint") || !strings.Contains(r.fatal, "exit status 3") {
		t.Fatalf("failed with %q", r.fatal)
	}
	r = record(t, func(t TB) { Process(t, "nobody").Line(longEnough) })
	if !strings.Contains(r.fatal, "knows no node") {
		t.Fatalf("failed with %q", r.fatal)
	}
}

func TestAServerDiesWithTheProcessThatStartedIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux can promise this")
	}
	RealOnly(t)
	n := Process(t, "parent", "TMPDIR="+t.TempDir())
	addr := n.Line(longEnough)
	_, err := serverInfo(addr)
	must(t, err)
	n.Kill()
	Eventually(t, longEnough, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	}, "the server is gone")
}

func TestLinesAreCutFromPieces(t *testing.T) {
	var l lines
	fmt.Fprint(&l, "one\ntw")
	fmt.Fprint(&l, "o\nthree")
	for _, want := range []string{"one", "two"} {
		got, ok, _ := l.next()
		equal(t, "line", got, want)
		equal(t, "ok", ok, true)
	}
	_, ok, more := l.next()
	equal(t, "ok", ok, false)
	fmt.Fprintln(&l)
	<-more
	got, _, _ := l.next()
	equal(t, "line", got, "three")
}
