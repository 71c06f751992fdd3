package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
	"github.com/redis/go-redis/v9"
)

// server is the Redis of the run.
type server struct {
	address string // as clientOptions takes it
	name    string // what to call it in the report
	stop    func() error
}

// openServer takes the Redis at the address, or starts a private one, or the embedded one where none is installed.
func openServer(ctx context.Context, address string) (*server, error) {
	if address == "" {
		return startServer(ctx)
	}
	s := &server{address: address, stop: func() error { return nil }}
	version, err := s.version(ctx)
	if err != nil {
		return nil, fmt.Errorf("-redis: %w", err)
	}
	s.name = version + ", given"
	return s, nil
}

func startServer(ctx context.Context) (*server, error) {
	started, err := redistest.StartAny(redistest.Options{Private: true})
	if err != nil {
		return nil, err
	}
	s := &server{address: started.Addr(), name: "embedded miniredis", stop: started.Stop}
	if !started.IsReal() {
		return s, nil
	}
	version, err := s.version(ctx)
	if err != nil {
		_ = started.Stop()
		return nil, err
	}
	s.name = version + ", private"
	return s, nil
}

// version asks the server for its product and version, and is the test that it can be reached at all.
func (s *server) version(ctx context.Context) (string, error) {
	o, err := clientOptions(s.address)
	if err != nil {
		return "", err
	}
	o.MaxRetries, o.DialerRetries = -1, 1 // whoever mistyped the address is told at once
	client := redis.NewClient(o)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	info, err := client.Info(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("%s: %w", o.Addr, err)
	}
	return product(info), nil
}

// product names the server that answered INFO. Valkey calls itself so in server_name and pretends to be Redis elsewhere.
func product(info string) string {
	fields := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(info))
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			fields[name] = value
		}
	}
	name := cmp.Or(fields["server_name"], "redis")
	return strings.TrimSpace(name + " " + cmp.Or(fields[name+"_version"], fields["redis_version"]))
}

// clientOptions reads host:port or a URL (redis, rediss, unix).
func clientOptions(address string) (*redis.Options, error) {
	if strings.Contains(address, "://") {
		return redis.ParseURL(address)
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, fmt.Errorf("%q: neither host:port nor a URL", address)
	}
	return &redis.Options{Addr: address}, nil
}
