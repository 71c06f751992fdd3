package linear

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// settings are what a node is told, in the environment.
type settings struct {
	Node     int
	Seed     uint64
	Database string
	Redis    string
	Journal  string
	Mutant   string
}

const settingsVar = "LEVEE_LINEAR_NODE"

const key = "register"

// node is one process.
type node struct {
	settings
	db      *sql.DB
	rdb     *redis.Client
	cache   *cache.Cache[string, int64]
	journal journal
	dice    dice

	// What a mutant does in another way.
	options cache.Options
	get     func(context.Context) (cache.Entry[int64], error)
	update  func(context.Context) (int64, error)
	remove  func(context.Context) error
}

// runNode reads and writes until it is killed, or the test's process has ended.
func runNode() {
	n, err := newNode(os.Getenv(settingsVar))
	if err != nil {
		slog.Error("the node does not start", "error", err)
		os.Exit(1)
	}
	redistest.Say("ready")
	for range readersPerNode {
		go n.repeat(5*time.Millisecond, n.read)
	}
	go n.repeat(20*time.Millisecond, n.writeInTurn)
	for range redistest.Input() { // nothing is sent
	}
}

func newNode(told string) (*node, error) {
	n := &node{}
	if err := json.Unmarshal([]byte(told), &n.settings); err != nil {
		return nil, err
	}
	n.dice.rng = rand.New(rand.NewPCG(n.Seed, uint64(n.Node)))
	var err error
	if n.journal, err = openJournal(n.Journal); err != nil {
		return nil, err
	}
	if n.db, err = openDatabase(n.Database); err != nil {
		return nil, err
	}
	n.rdb = redis.NewClient(&redis.Options{Addr: n.Redis})
	n.options = cache.Options{
		Redis: n.rdb, TTL: ttl, LocalTTL: ttl, StaleWhileRevalidate: staleIfError, StaleIfError: staleIfError,
		RedisTimeout: redisTimeout, Lease: lease, LoadTimeout: 20 * time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	n.get, n.update, n.remove = n.getEntry, n.addOne, n.delete
	if m, ok := mutants[n.Mutant]; ok {
		m.change(n)
	}
	n.cache, err = cache.New("linear", loader.Func(n.load), n.options)
	return n, err
}

func (n *node) getEntry(ctx context.Context) (cache.Entry[int64], error) {
	return n.cache.GetEntry(ctx, key)
}

func (n *node) delete(ctx context.Context) error { return n.cache.Delete(ctx, key) }

// addOne writes the next value. The database puts the writers in order, so the greater is the newer.
func (n *node) addOne(ctx context.Context) (value int64, err error) {
	err = n.db.QueryRowContext(ctx, `UPDATE register SET value = value + 1 RETURNING value`).Scan(&value)
	return value, err
}

const longestDawdle = 600 * time.Millisecond

// load is slow at times, before it reads and, what is worse, after it.
func (n *node) load(ctx context.Context, _ string) (value int64, err error) {
	rest(n.dice.dawdle())
	err = n.db.QueryRowContext(ctx, `SELECT value FROM register`).Scan(&value)
	rest(n.dice.dawdle())
	return value, err
}

// repeat does something again and again, with pauses of this mean between: most are short.
func (n *node) repeat(mean time.Duration, do func()) {
	for {
		rest(n.dice.pause(mean))
		do()
	}
}

func (n *node) read() {
	o := op{Node: n.Node, Start: now()}
	e, err := n.get(context.Background())
	o.End = now()
	o.Value, o.Source = e.Value, e.Source.String()
	if err != nil {
		o.Failed = err.Error()
	}
	n.record(o)
}

// writeInTurn writes in the first second of three. What goes wrong with the last write is to be seen in
// the other two; the next one would hide it. So would another node's: every second time there is one writer.
func (n *node) writeInTurn() {
	const busy, cycle = time.Second, 3 * time.Second
	turn := int(now() / cycle)
	if now()%cycle < busy && (turn%2 == 0 || turn/2%nodes == n.Node) {
		n.write()
	}
}

// write is followed by a read at once: the one that is most likely to bring what was there before.
func (n *node) write() {
	o := op{Node: n.Node, Write: true, Start: now()}
	value, err := n.update(context.Background())
	o.Done, o.Value = now(), value
	invalidated := n.remove(context.Background())
	o.End = now()
	if unconfirmed, ok := errors.AsType[*cache.InvalidationError](invalidated); ok {
		o.Unconfirmed, o.Bound = true, unconfirmed.Bound
	} else if err := errors.Join(err, invalidated); err != nil {
		o.Failed = err.Error()
	}
	n.record(o)
	n.read()
}

func (n *node) record(o op) {
	o.RedisErrors = n.cache.Stats().RedisErrors
	n.journal.add(o)
}

// dice are thrown by several goroutines.
type dice struct {
	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

func (d *dice) pause(mean time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rng.ExpFloat64() * float64(mean))
}

// dawdle is nothing, mostly; a few milliseconds, often; and rarely, very long.
func (d *dice) dawdle() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch throw := d.rng.IntN(50); {
	case throw == 0:
		return time.Duration(d.rng.Int64N(int64(longestDawdle)))
	case throw < 20:
		return time.Duration(d.rng.Int64N(int64(20 * time.Millisecond)))
	}
	return 0
}
