package redistest

import (
	"errors"
	"os"

	"github.com/redis/go-redis/v9"
)

// ErrNoServer is returned where a real server is needed, REDIS_ADDR is not set
// and neither redis-server nor valkey-server is on PATH.
var ErrNoServer = errors.New("redistest: no redis-server or valkey-server on PATH, and REDIS_ADDR is not set")

// ErrUnsupported is returned by the methods of [Server] that this kind of
// server cannot do, such as pausing one that belongs to somebody else.
var ErrUnsupported = errors.New("redistest: not possible with this server")

// Options say how a server is started. The zero value is a private server with
// its default settings, or the one that REDIS_ADDR names.
type Options struct {
	// Args are more arguments for the server program, such as "--maxmemory",
	// "3mb". With any, REDIS_ADDR is not used.
	Args []string
	// Private asks for a process of one's own, also if REDIS_ADDR is set.
	Private bool
	// Env ("K=V") is added to the environment of a private server.
	Env []string

	config string // a file; it comes before all arguments
}

// Server is a running server that belongs to the caller, or a database of one
// that does not. Its methods are not safe for concurrent use, except those that
// only describe it.
type Server struct {
	addr string
	kind string
	db   int
	real bool
	host host
}

// host is what keeps a Server running.
type host interface {
	pid() int
	stop() error
	kill() error
	pause() error
	resume() error
	restart() error
}

// Start starts a real server: a private process on a free port of loopback, or
// an empty database of the server at REDIS_ADDR. It returns once the server
// answers; [ErrNoServer] if there is none. The caller must call Stop.
func Start(o Options) (*Server, error) {
	addr := os.Getenv("REDIS_ADDR")
	if addr != "" && !o.Private && len(o.Args)+len(o.Env) == 0 {
		return claimDatabase(addr)
	}
	return startDaemon(o)
}

// StartAny is Start, or [Embedded] where there is no real server. Kind and
// IsReal say which it is.
func StartAny(o Options) (*Server, error) {
	s, err := Start(o)
	if errors.Is(err, ErrNoServer) {
		return Embedded()
	}
	return s, err
}

// Addr is the server's host:port; it stays the same over Restart.
func (s *Server) Addr() string { return s.addr }

// DB is the number of the database to use.
func (s *Server) DB() int { return s.db }

// Kind describes the server for a person, such as "redis-server 7.0.15" or
// "embedded (miniredis 2.40.0)".
func (s *Server) Kind() string { return s.kind }

// IsReal is false for the embedded server.
func (s *Server) IsReal() bool { return s.real }

// Pid is the server's process id, 0 if this process did not start one.
func (s *Server) Pid() int { return s.host.pid() }

// Options returns client options with the address and database filled in.
func (s *Server) Options() *redis.Options {
	return &redis.Options{Addr: s.addr, DB: s.db}
}

// Client returns a client that is closed when the test ends. Each edit may
// change the options before the client is made.
func (s *Server) Client(t TB, edit ...func(*redis.Options)) *redis.Client {
	return newClient(t, s.Options(), edit)
}

func newClient(t TB, o *redis.Options, edit []func(*redis.Options)) *redis.Client {
	for _, f := range edit {
		f(o)
	}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Stop ends the server, waits for it, and removes what it left. Stopping twice
// is harmless.
func (s *Server) Stop() error { return s.host.stop() }

// Kill ends the server as a crash would, and waits for it. Restart is possible.
func (s *Server) Kill() error { return s.host.kill() }

// Pause freezes the process: connections stay open and nothing answers.
func (s *Server) Pause() error { return s.host.pause() }

// Resume undoes Pause.
func (s *Server) Resume() error { return s.host.resume() }

// Restart ends the server, if it still runs, and starts it empty on the same
// port.
func (s *Server) Restart() error { return s.host.restart() }
