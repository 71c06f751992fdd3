package redistest

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

//go:embed clock/clock.c
var clockSource []byte

// ServerClock is the wall clock of one server, which a test may set.
type ServerClock struct {
	t    TB
	file *os.File
}

// RealWithClock returns a server process of this test's own whose wall clock can be set, by a library
// that is loaded before the C library's. Where there is no server program, or no C compiler to build that with,
// the test is skipped, or fails if LEVEE_REQUIRE_REDIS=1.
func RealWithClock(t TB, args ...string) (*Server, *ServerClock) {
	t.Helper()
	dir, err := os.MkdirTemp("", "levee-clock-")
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	library, err := buildClock(dir)
	if err != nil && !mustBeReal() {
		t.Skipf("REDISTEST: SKIPPED, THE CLOCK CANNOT BE BUILT: %v", err)
	}
	c := &ServerClock{t: t}
	if err == nil {
		c.file, err = os.Create(filepath.Join(dir, "clock"))
	}
	if err != nil {
		t.Fatalf("redistest: clock: %v", err)
	}
	t.Cleanup(func() { _ = c.file.Close() })
	c.set(0, 0)
	s, err := Start(Options{Args: args, Private: true, Env: []string{"LD_PRELOAD=" + library, "LEVEE_CLOCK=" + c.file.Name()}})
	skipWithout(t, err)
	return stopAfter(t, s, err), c
}

func buildClock(dir string) (library string, err error) {
	source := filepath.Join(dir, "clock.c")
	library = filepath.Join(dir, "clock.so")
	if err := os.WriteFile(source, clockSource, 0o600); err != nil {
		return "", err
	}
	if text, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl").CombinedOutput(); err != nil {
		return "", fmt.Errorf("cc: %w: %s", err, text)
	}
	return library, nil
}

// Shift makes the server's clock show d more than this machine's.
func (c *ServerClock) Shift(d time.Duration) {
	c.t.Helper()
	c.set(int64(d), 0)
}

// Freeze makes it stand still, at this machine's time.
func (c *ServerClock) Freeze() {
	c.t.Helper()
	c.set(0, time.Now().UnixNano())
}

func (c *ServerClock) set(shift, still int64) {
	c.t.Helper()
	var both [16]byte
	binary.NativeEndian.PutUint64(both[:8], uint64(shift))
	binary.NativeEndian.PutUint64(both[8:], uint64(still))
	if _, err := c.file.WriteAt(both[:], 0); err != nil {
		c.t.Fatalf("redistest: clock: %v", err)
	}
}
