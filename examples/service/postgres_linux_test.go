package main

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// startPostgres starts a server that only this test can reach, by a socket in a directory of its
// own, and stops it when the test ends.
func startPostgres(t *testing.T) (url string, err error) {
	bin, err := postgresPrograms()
	if err != nil {
		return "", err
	}
	who, err := postgresUser()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "levee-pg-") // not t.TempDir: another user must get there
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if who != nil {
		must(t, os.Chown(dir, int(who.Uid), int(who.Gid)))
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Pdeathsig: syscall.SIGQUIT}
		return cmd
	}
	out, err := command("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, out)
	}
	keepRunning(t, command("postgres", "-D", filepath.Join(dir, "data"), "-k", dir, "-h", "", "-F"))
	url = "postgres:///postgres?user=postgres&host=" + dir
	return url, awaitPostgres(t, url)
}

// postgresPrograms is where initdb and postgres are; Debian keeps them out of the PATH.
func postgresPrograms() (dir string, err error) {
	if initdb, err := exec.LookPath("initdb"); err == nil {
		initdb, err = filepath.EvalSymlinks(initdb)
		return filepath.Dir(initdb), err
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", fmt.Errorf("%w: initdb is neither in the PATH nor below /usr/lib/postgresql", errNoPostgres)
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// postgresUser is who runs the server: it refuses to run as root.
func postgresUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, fmt.Errorf("%w: root may not run it, and %w", errNoPostgres, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, err
}

// keepRunning runs a server until the test ends. Its goroutine keeps its thread: the kernel takes the end
// of that for the end of the parent.
func keepRunning(t *testing.T, server *exec.Cmd) {
	t.Helper()
	started, ended := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- server.Start()
		ended <- server.Wait()
	}()
	must(t, <-started)
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT) // "fast": does not wait for clients
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", server.Path, err)
		}
	})
}

func awaitPostgres(t *testing.T, url string) error {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer db.Close()
	redistest.Eventually(t, time.Minute, func() bool { return db.Ping() == nil }, "PostgreSQL answers")
	return nil
}
