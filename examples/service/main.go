// Command service keeps users in a database, behind HTTP, with Levee in its data-access layer.
// Run several against one database and one Redis: a hot user costs them one query.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		slog.Error("service", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ttl, err := time.ParseDuration(cmp.Or(os.Getenv("CACHE_TTL"), "1m"))
	if err != nil {
		return err
	}
	db, err := openDatabase(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()

	var rdb redis.UniversalClient // nil: every instance protects the database by itself
	if addr := os.Getenv("REDIS_ADDR"); addr != "" {
		rdb = redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
	}

	users, err := NewUsers(db, rdb, ttl)
	if err != nil {
		return err
	}
	defer users.Close()
	return serve(ctx, users)
}

// serve answers until ctx ends, and then as long as requests and loads are under way: first the
// cache's callers end, then the cache; what it stands on is closed by the caller, last.
func serve(ctx context.Context, users *Users) error {
	ln, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "localhost:8080"))
	if err != nil {
		return err
	}
	fmt.Printf("http://%v\n", ln.Addr())

	server := &http.Server{Handler: routes(users), ReadHeaderTimeout: 5 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(grace), users.Shutdown(grace))
}
