package redistest

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
)

// sharedDatabases is how many tests may use the shared server at once.
const sharedDatabases = 256

// shared is the one server of this test binary and the databases nobody uses.
var shared struct {
	mu     sync.Mutex
	server *Server
	free   []int
}

// Shared returns a database of one server that all tests of this binary use,
// flushed before and after; it saves the 50 ms that a process costs. Channels
// and scripts are shared: tests that run in parallel need names of their own,
// see [Prefix]. It cannot be paused, killed or restarted. Without a server
// program, and with REDIS_ADDR, it is [Real]. [Main] stops the shared server.
func Shared(t TB) *Server {
	t.Helper()
	if os.Getenv("REDIS_ADDR") != "" {
		return Real(t)
	}
	s, err := takeDatabase()
	if errors.Is(err, ErrNoServer) {
		return Real(t)
	}
	if err == nil {
		t.Cleanup(func() { giveBack(t, s) })
		err = flush(context.Background(), s.addr, s.db)
	}
	if err != nil {
		t.Fatalf("redistest: shared server: %v", err)
	}
	return s
}

func takeDatabase() (*Server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if err := startSharedLocked(); err != nil {
		return nil, err
	}
	if len(shared.free) == 0 {
		return nil, errors.New("every database is in use")
	}
	last := len(shared.free) - 1
	db := shared.free[last]
	shared.free = shared.free[:last]
	s := shared.server
	return &Server{addr: s.addr, kind: s.kind, db: db, real: true, host: guest{s}}, nil
}

func startSharedLocked() error {
	if shared.server != nil {
		return nil
	}
	s, err := startDaemon(Options{Args: []string{"--databases", strconv.Itoa(sharedDatabases)}})
	if err != nil {
		return err
	}
	shared.server, shared.free = s, shared.free[:0]
	for db := range sharedDatabases {
		shared.free = append(shared.free, db)
	}
	return nil
}

func giveBack(t TB, s *Server) {
	if err := flush(context.Background(), s.addr, s.db); err != nil {
		t.Logf("redistest: database %d of the shared server is lost: %v", s.db, err)
		return
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.free = append(shared.free, s.db)
}

func stopShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		_ = shared.server.Stop()
		shared.server = nil
	}
}

// guest is a test's view of the shared server: it must not touch the process.
type guest struct{ server *Server }

func (g guest) pid() int       { return g.server.Pid() }
func (g guest) stop() error    { return nil }
func (g guest) kill() error    { return ErrUnsupported }
func (g guest) pause() error   { return ErrUnsupported }
func (g guest) resume() error  { return ErrUnsupported }
func (g guest) restart() error { return ErrUnsupported }
