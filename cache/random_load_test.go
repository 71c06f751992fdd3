package cache_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/levee-cache/levee/loader"
	"github.com/levee-cache/levee/rebuild"
)

var errDatabase = errors.New("the database is down")

// course is what a query does.
type course struct {
	before, after time.Duration // the reading of the row
	outcome       outcome
	deaf          bool // to its context
}

type outcome int

const (
	succeeds outcome = iota
	fails
	panics
	exits
)

// course is what the nth query of a key does.
func (p *randomPlan) course(key string, nth int) course {
	r := rand.New(rand.NewPCG(p.seed, uint64(nth)<<8+uint64(key[len(key)-1])))
	most := draw(r, 2*time.Millisecond, 10*time.Millisecond, 50*time.Millisecond, 300*time.Millisecond)
	c := course{before: upTo(r, most), after: upTo(r, most)}
	switch n := r.IntN(100); {
	case n < 10:
		c.outcome = fails
	case n < 13:
		c.outcome = panics
	case n < 15:
		c.outcome = exits
	case n < 22:
		c.after += p.o.Lease + upTo(r, time.Second) // renewals must keep its lease
	case n < 25:
		c.after, c.deaf = p.o.LoadTimeout+upTo(r, time.Second), r.IntN(2) == 0
	}
	return c
}

func (p *randomPlan) tagsOf(key string) []string {
	if p.tags {
		return []string{key, "all"}
	}
	return nil
}

// loadTagged is the loader of a node.
func (n *randomNode) loadTagged(ctx context.Context, key string, _ *loader.Previous[string]) (loader.Result[string], error) {
	v, err := n.load(ctx, key)
	return loader.Result[string]{Value: v, Tags: n.w.tagsOf(key)}, err
}

func (n *randomNode) load(ctx context.Context, key string) (string, error) {
	l, q, c := n.begin(key)
	if err := c.pass(ctx, c.before); err != nil {
		return "", l.end(q, 0, err)
	}
	version := l.read()
	err := c.pass(ctx, c.after)
	switch {
	case err != nil:
	case c.outcome == fails:
		err = errDatabase
	case c.outcome == panics:
		panic(l.end(q, 0, errDatabase))
	case c.outcome == exits:
		_ = l.end(q, 0, loader.ErrGoexit)
		runtime.Goexit()
	case !exists(version):
		err = fmt.Errorf("version %d: %w", version, loader.ErrNotFound)
	}
	return value(key, version), l.end(q, version, err)
}

func (c course) pass(ctx context.Context, d time.Duration) error {
	if c.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	return pass(ctx, d)
}

// begin begins a query. What it does hangs on the seed and on its number alone.
func (n *randomNode) begin(key string) (*ledger, *query, course) {
	w := n.w
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.ledgers[slices.Index(w.keys, key)]
	c := w.course(key, len(l.queries))
	if w.calm {
		c = course{before: time.Millisecond, after: w.calmLoad}
	}
	stats, lease := n.Stats(), l.lease()
	q := &query{node: n, began: w.now(), leased: n.granted[lease], refresh: n.refreshing[key] > 0, lost: stats.LeasesLost, remote: stats.Remote}
	if q.leased {
		n.granted[lease] = false // it is good for one load
	}
	n.loads++
	w.note(key, "%v: load %d begins, leased: %v", n, len(l.queries)+1, q.leased)
	if n.gone {
		q.ended = q.began
	} else {
		l.begins(q)
	}
	l.queries = append(l.queries, q)
	return l, q, c
}

// end ends q. What it brings when it was over is dropped.
func (l *ledger) end(q *query, version int, err error) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	now := l.w.now()
	l.w.note(l.key, "%v: load from %v ends: version %d, %v", q.node, q.began, version, err)
	if q.over(now) {
		return err
	}
	q.ended, q.failed = now, err != nil && !isAbsence(err)
	if !q.failed {
		l.brought(version)
	}
	return err
}

// read reads the row.
func (l *ledger) read() int {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.version
}

// raw is the entry in Redis, or empty.
func (l *ledger) raw() string {
	raw, err := l.w.bubble.Mini().Get(l.redisKey)
	if err != nil || len(raw) < rebuild.HeaderSize {
		return ""
	}
	return raw
}

// lease is the token of the lease that is in Redis, or empty.
func (l *ledger) lease() string {
	raw := l.raw()
	if raw == "" || millisAt(raw, untilAt) <= time.Now().UnixMilli() {
		return ""
	}
	return tokenOf(raw)
}

func tokenOf(raw string) string { return strings.Trim(raw[tokenAt:startAt], ".") }

// Where the windows end, before what is remembered of a failure and the lease.
const (
	instant = 11 // hex digits of milliseconds
	freshAt = tokenAt - 2 - 5*instant
	staleAt = freshAt + instant
)

func millisAt(raw string, at int) int64 {
	ms, err := strconv.ParseInt(raw[at:at+instant], 16, 64)
	if err != nil {
		return 0
	}
	return ms
}

// servable tells whether there is a value in Redis that nobody has to wait for, and will be.
func (l *ledger) servable() bool {
	raw := l.raw()
	soon := time.Now().Add(l.w.o.RedisTimeout).UnixMilli()
	return raw != "" && (kindOf(raw) == rebuild.KindValue && millisAt(raw, staleAt) > soon ||
		kindOf(raw) == rebuild.KindNotFound && millisAt(raw, freshAt) > soon)
}

func kindOf(raw string) rebuild.Kind { return rebuild.Kind(raw[len("LVE1")]) }
