package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// run is one comparison: the same work in one mode after the other, on one server.
type run struct {
	settings
	server *server
	work   *workload
	space  string // first part of every key of this run
	line   *progress
	report func(result) error
}

func (r *run) compare(ctx context.Context) error {
	for _, mode := range r.modes {
		outcome, err := r.measure(ctx, mode)
		if err != nil {
			return fmt.Errorf("mode %s: %w", mode, err)
		}
		if err := r.report(outcome); err != nil {
			return err
		}
	}
	return nil
}

// measure warms one mode up and counts it.
func (r *run) measure(ctx context.Context, mode string) (result, error) {
	db, sent := newDatabase(r.load, r.ttl, r.dbConns), new(meter)
	nodes, err := r.openNodes(mode, db, sent)
	defer closeNodes(nodes)
	if err != nil {
		return result{}, err
	}
	c := &crowd{nodes: nodes, callers: r.callers, think: r.think, work: r.work}
	if _, err := r.stretch(ctx, c, db, mode+", warming up", r.warmUp()); err != nil {
		return result{}, err
	}
	db.reset()
	r.work.reset()
	runtime.GC() // every mode starts with the same heap
	before := sent.commands.Load()
	seen, err := r.stretch(ctx, c, db, mode, r.runFor)
	return r.result(mode, seen, db.totals(), sent.commands.Load()-before), err
}

// stretch lets the crowd work for a while, and returns when no caller and no query is left.
func (r *run) stretch(ctx context.Context, c *crowd, db *database, title string, d time.Duration) (*recording, error) {
	s := c.start(ctx)
	r.line.follow(ctx, title, d, s.reads, db)
	seen := s.stop()
	if ctx.Err() != nil {
		return seen, errInterrupted
	}
	db.quiesce()
	return seen, nil
}

var errInterrupted = errors.New("interrupted")

// warmUp sees the key expire once, if that can be waited for: connections are open and scripts loaded afterwards.
func (r *run) warmUp() time.Duration {
	return min(r.ttl+2*r.load+200*time.Millisecond, 2*time.Second)
}

func (r *run) openNodes(mode string, db source, sent *meter) (nodes []*node, err error) {
	p := plan{TTL: r.ttl, Stale: r.stale, Space: r.space + "-" + mode, Callers: r.callers}
	for range r.nodes {
		n, err := openNode(mode, r.server.address, sent, db, p)
		if err != nil {
			return nodes, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// closeNodes has nobody to tell of a fault: what was to be measured has been.
func closeNodes(nodes []*node) {
	for _, n := range nodes {
		_ = n.close()
	}
}

func (r *run) result(mode string, seen *recording, db counts, commands int64) result {
	return newResult(mode, r.server.name, r.settings, seen, db, commands)
}
