package redistest

import (
	"runtime/debug"

	"github.com/alicebob/miniredis/v2"
)

// Embedded starts miniredis on a free port of loopback. Keys expire by the
// clock. Pause and Resume are not possible. The caller must call Stop.
func Embedded() (*Server, error) {
	e := &embedded{addr: "127.0.0.1:0"}
	if err := e.start(); err != nil {
		return nil, err
	}
	return &Server{addr: e.addr, kind: embeddedKind(), host: e}, nil
}

type embedded struct {
	mini *miniredis.Miniredis
	addr string
}

// start makes a new miniredis each time: a closed one keeps its data, its
// scripts, and a context that ends every blocking command at once.
func (e *embedded) start() error {
	e.mini = miniredis.NewMiniRedis()
	if err := e.mini.StartAddr(e.addr); err != nil {
		return err
	}
	e.addr = e.mini.Addr()
	e.mini.ClockTTL(true)
	return nil
}

func (e *embedded) pid() int { return 0 }

func (e *embedded) stop() error {
	e.mini.Close()
	return nil
}

func (e *embedded) kill() error   { return e.stop() }
func (e *embedded) pause() error  { return ErrUnsupported }
func (e *embedded) resume() error { return ErrUnsupported }

func (e *embedded) restart() error {
	e.mini.Close()
	return e.start()
}

// embeddedKind takes miniredis' version from the build, where it is recorded.
func embeddedKind() string {
	const path = "github.com/alicebob/miniredis/v2"
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, m := range b.Deps {
			if m.Path == path {
				return "embedded (miniredis " + m.Version[1:] + ")"
			}
		}
	}
	return "embedded (miniredis)"
}
