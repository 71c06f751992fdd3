package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/redis/go-redis/v9"
)

// sentinelName is what a sentinel calls the primary.
const sentinelName = "primary"

// Sentinel starts one that watches the server at addr, and promotes a replica within a few seconds of its end. It
// returns the options of a client that asks it for the primary. It is stopped when the test ends; without a server program the
// test is skipped, or fails if LEVEE_REQUIRE_REDIS=1.
func Sentinel(t TB, addr string) *redis.FailoverOptions {
	t.Helper()
	s, err := startSentinel(t, addr)
	skipWithout(t, err)
	return &redis.FailoverOptions{MasterName: sentinelName, SentinelAddrs: []string{stopAfter(t, s, err).Addr()}}
}

// startSentinel writes a configuration first, in which the sentinel keeps what it learns.
func startSentinel(t TB, addr string) (*Server, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "levee-sentinel-")
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	config := filepath.Join(dir, "sentinel.conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, "sentinel monitor %[1]s %[2]s %[3]s 1\n"+
		"sentinel down-after-milliseconds %[1]s 500\nsentinel failover-timeout %[1]s 3000\n", sentinelName, host, port), 0o600); err != nil {
		return nil, err
	}
	return startDaemon(Options{Args: []string{"--sentinel"}, config: config})
}
