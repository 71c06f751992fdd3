package redistest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// startTimeout bounds the wait for a server's first answer; it is long because
// machines that run tests can be very busy.
const startTimeout = 20 * time.Second

// daemon is a server process of our own.
type daemon struct {
	bin   string
	dir   string
	port  int
	args  []string
	env   []string
	conf  []string // a file, or none
	child *child
	kind  string
}

func startDaemon(o Options) (*Server, error) {
	return startDaemonOn(freePort, o)
}

// startDaemonOn tries several ports: a free one may be taken by somebody else
// before the server binds it.
func startDaemonOn(pick func() (int, error), o Options) (*Server, error) {
	bin, err := findServer()
	if err != nil {
		return nil, err
	}
	d := &daemon{bin: bin, args: o.Args, env: o.Env}
	if o.config != "" {
		d.conf = []string{o.config}
	}
	for range 5 {
		if d.port, err = pick(); err != nil {
			return nil, err
		}
		if err = d.start(); err == nil {
			return &Server{addr: d.addr(), kind: d.kind, real: true, host: d}, nil
		}
	}
	return nil, err
}

func findServer() (string, error) {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if bin, err := exec.LookPath(name); err == nil {
			return bin, nil
		}
	}
	return "", ErrNoServer
}

func (d *daemon) addr() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(d.port))
}

func (d *daemon) start() error {
	var err error
	if d.dir, err = os.MkdirTemp("", "levee-redis-"); err != nil {
		return err
	}
	if err = d.run(); err != nil {
		_ = d.stop()
	}
	return err
}

func (d *daemon) run() error {
	log, err := os.Create(filepath.Join(d.dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(d.bin, d.arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), d.env...)
	if d.child, err = startChild(cmd); err != nil {
		d.child = nil
		return fmt.Errorf("redistest: start %s: %w", d.bin, err)
	}
	return d.await()
}

// arguments come after --port and the rest, so that the caller's win.
func (d *daemon) arguments() []string {
	return slices.Concat(d.conf, []string{
		"--port", strconv.Itoa(d.port),
		"--bind", "127.0.0.1",
		"--save", "",
		"--appendonly", "no",
		"--daemonize", "no",
		"--dir", d.dir,
	}, d.args)
}

// await returns when this very process answers on the port, not another one
// that was quicker to bind it.
func (d *daemon) await() error {
	var inf info
	err := errors.New("no answer")
	up := func() bool {
		inf, err = serverInfo(d.addr())
		return err == nil && (inf.locked || inf.pid == d.child.pid()) || d.child.ended()
	}
	if !poll(startTimeout, up) || d.child.ended() {
		return fmt.Errorf("redistest: %s did not come up on port %d: %w\n%s", d.bin, d.port, err, d.log())
	}
	d.kind = inf.kind(filepath.Base(d.bin))
	return nil
}

func (d *daemon) log() string {
	text, _ := os.ReadFile(filepath.Join(d.dir, "log"))
	return string(text[max(0, len(text)-2000):])
}

func (d *daemon) pid() int {
	if d.child == nil {
		return 0
	}
	return d.child.pid()
}

func (d *daemon) stop() error {
	if d.child != nil {
		d.child.stop()
	}
	return os.RemoveAll(d.dir)
}

func (d *daemon) kill() error {
	d.child.kill()
	return nil
}

func (d *daemon) pause() error  { return pause(d.child.cmd.Process) }
func (d *daemon) resume() error { return resume(d.child.cmd.Process) }

func (d *daemon) restart() error {
	if err := d.stop(); err != nil {
		return err
	}
	return d.start()
}
