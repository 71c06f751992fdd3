// Command stampede shows what happens to a database when a hot key expires: with a plain cache, with a singleflight in every
// node, and with levee. It starts a fleet of nodes on one Redis and lets their callers read a key that expires again and again.
//
//	go run ./bench/stampede
//	go run ./bench/stampede -kill
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/google/uuid"
)

func main() {
	// A service has a larger heap than this program: collected as often as its few megabytes ask for, it would measure
	// the collector. The same for every mode.
	debug.SetGCPercent(400)
	if os.Getenv(nodeProcess) != "" {
		os.Exit(nodeMain(os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := start(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// start is the program: 0 is success, 1 a run that failed, 2 a wrong command line.
func start(ctx context.Context, args []string, out, log io.Writer) (code int) {
	s, err := parse(args, log)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errReported):
		return 2
	case err != nil:
		fmt.Fprintln(log, err)
		return 2
	}
	if err := execute(ctx, s, out, log); err != nil {
		fmt.Fprintln(log, "stampede:", err)
		return 1
	}
	return 0
}

func execute(ctx context.Context, s settings, out, log io.Writer) (err error) {
	work, err := openWorkload(s)
	if err != nil {
		return err
	}
	srv, err := openServer(ctx, s.redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	r := &run{settings: s, server: srv, work: work, space: "stampede-" + uuid.NewString()[:8], line: newProgress(log)}
	fmt.Fprintln(log, "on", srv.name)
	if s.kill {
		return r.killHolders(ctx, out)
	}
	return r.present(ctx, out, log)
}

// present prints the comparison, as lines of JSON while it runs or as a table at its end.
func (r *run) present(ctx context.Context, out, log io.Writer) error {
	var results []result
	emit := jsonLines(out)
	r.report = func(one result) error {
		if one.firstError != nil {
			fmt.Fprintf(log, "%s: first error: %v\n", one.Mode, one.firstError)
		}
		if r.json {
			return emit(one)
		}
		results = append(results, one)
		return nil
	}
	if err := r.compare(ctx); err != nil || r.json {
		return err
	}
	fmt.Fprintf(out, "%s\n\n", r.title(r.server.name))
	if err := table(out, results); err != nil {
		return err
	}
	_, err := fmt.Fprint(out, legend)
	return err
}
