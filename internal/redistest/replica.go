package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Replica returns a server process that copies the one at addr, which may be that of a [Proxy] in front of it. It is in step
// when Replica returns, and stopped when the test ends. Without a server program the test is skipped, or
// fails if LEVEE_REQUIRE_REDIS=1.
func Replica(t TB, addr string, args ...string) *Server {
	t.Helper()
	s, err := startReplica(addr, args)
	skipWithout(t, err)
	return stopAfter(t, s, err)
}

func startReplica(addr string, args []string) (*Server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if err := (&Server{addr: addr}).use(hurrySync); err != nil {
		return nil, err
	}
	s, err := startDaemon(Options{Args: append([]string{"--replicaof", host + " " + port}, args...)})
	if err != nil {
		return nil, err
	}
	if err := s.use(awaitStep); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// hurrySync makes a server not wait for more replicas before it sends its data to one.
func hurrySync(r *redis.Client) error {
	return r.ConfigSet(context.Background(), "repl-diskless-sync-delay", "0").Err()
}

// awaitStep waits until a replica has the data of its master.
func awaitStep(r *redis.Client) error {
	var text string
	var err error
	inStep := func() bool {
		text, err = r.Info(context.Background(), "replication").Result()
		return strings.Contains(text, "master_link_status:up")
	}
	if poll(startTimeout, inStep) {
		return nil
	}
	return fmt.Errorf("redistest: the replica is not in step: %w\n%s", err, text)
}

// Promote makes a replica a master, as a failover does.
func (s *Server) Promote(ctx context.Context) error {
	return s.use(func(r *redis.Client) error { return r.Do(ctx, "replicaof", "no", "one").Err() })
}
