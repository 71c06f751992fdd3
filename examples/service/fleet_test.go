package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// fleet is the service in several processes, on a database and a Redis of its own.
type fleet struct {
	t      *testing.T
	nodes  []*node
	redis  *redistest.Server
	rdb    *redis.Client
	db     *sql.DB
	users  *Users // tells other programs the names of keys
	client *http.Client

	postgres bool
}

type node struct {
	proc    *redistest.Proc
	url     string
	stopped atomic.Pointer[time.Time] // nil: not yet
}

func startFleet(t *testing.T) *fleet {
	f := &fleet{t: t, redis: redistest.RealOnly(t)}
	f.rdb = f.redis.Client(t, func(o *redis.Options) { o.MaxRetries, o.DialerRetries = -1, 1 })
	f.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{MaxIdleConnsPerHost: 2 * clientsPerNode}}
	t.Cleanup(f.client.CloseIdleConnections)

	url := database(t)
	var err error
	f.postgres = strings.HasPrefix(url, "postgres")
	f.db, err = openDatabase(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = f.db.Close() })
	for id := range keys * 2 / 3 {
		_, err = f.db.Exec(`INSERT INTO users (id, name, version) VALUES ($1, 'first', 1)`, id)
		must(t, err)
	}
	f.users, err = NewUsers(f.db, f.rdb, ttl)
	must(t, err)
	t.Cleanup(func() { _ = f.users.Close() })

	for range nodes {
		p := redistest.Process(t, "service",
			"ADDR=127.0.0.1:0", "DATABASE_URL="+url, "REDIS_ADDR="+f.redis.Addr(), "CACHE_TTL="+ttl.String())
		f.nodes = append(f.nodes, &node{proc: p})
	}
	for _, n := range f.nodes {
		n.url = n.proc.Line(time.Minute)
	}
	return f
}

func (n *node) user(key int64) string { return fmt.Sprintf("%s/users/%d", n.url, key) }

func (f *fleet) stats(n *node) (s Stats, err error) {
	resp, err := f.client.Get(n.url + "/stats")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// stopInTurn stops the nodes as a deployment would: with queries under way, one of them for a
// client that has left, and while the other clients go on; for the last node nobody else is waiting.
func (f *fleet) stopInTurn() {
	for i, n := range f.nodes {
		key := int64(keys + i)
		if i == len(f.nodes)-1 {
			n.stopClients()
			<-time.After(2 * inFlight)
		}
		letGo := f.holdUpQueries()
		f.askAndLeave(n.user(key))
		n.stopClients()
		process, err := os.FindProcess(n.proc.Pid())
		must(f.t, err)
		must(f.t, process.Signal(syscall.SIGTERM))
		<-time.After(inFlight)
		letGo()
		if err := n.proc.Wait(); err != nil {
			f.t.Errorf("node %d did not stop cleanly: %v", i, err)
		}
		entry, err := f.rdb.Get(f.t.Context(), f.users.cache.RedisKey(key)).Result()
		if err == nil && leased(entry) {
			f.t.Errorf("node %d left a lease, on a query that nobody else waited for: %q", i, entry)
		}
	}
}

// askAndLeave sends a request and does not wait for a slow answer.
func (f *fleet) askAndLeave(url string) {
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*inFlight)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(f.t, err)
	if resp, err := f.client.Do(req); err == nil {
		_ = resp.Body.Close()
	}
}

// inFlight is how long after its sending a request has certainly come to the node.
const inFlight = 250 * time.Millisecond

func (n *node) stopClients() {
	now := time.Now()
	n.stopped.CompareAndSwap(nil, &now)
}

// owes tells whether n must answer a request sent then.
func (n *node) owes(sent time.Time) bool {
	stopped := n.stopped.Load()
	return stopped == nil || sent.Before(stopped.Add(-inFlight))
}

// holdUpQueries makes queries wait. SQLite's readers wait for nobody.
func (f *fleet) holdUpQueries() (letGo func()) {
	if !f.postgres {
		return func() {}
	}
	tx, err := f.db.BeginTx(f.t.Context(), nil)
	must(f.t, err)
	_, err = tx.Exec(`LOCK TABLE users`)
	must(f.t, err)
	return func() { must(f.t, tx.Rollback()) }
}

// Where docs/protocol.md puts the tokens of an entry's writer and of its lease.
const (
	writerAt, leaseAt = 20, 133
	tokenSize         = 22
	noToken           = "......................"
)

func leased(entry string) bool {
	return len(entry) < leaseAt+tokenSize || entry[leaseAt:leaseAt+tokenSize] != noToken
}

// leftInRedis lists what the fleet should not have left there.
func (f *fleet) leftInRedis() (findings []string) {
	ctx, values := f.t.Context(), 0
	found := f.rdb.Scan(ctx, 0, "*", 1000).Iterator()
	for found.Next(ctx) {
		key := found.Val()
		if strings.Contains(key, "!") { // the stream of messages and the generation are no entries
			if life, err := f.rdb.PTTL(ctx, key).Result(); err != nil || life == -1 {
				findings = append(findings, fmt.Sprintf("%s has no lifetime (%v)", key, err))
			}
			continue
		}
		entry, err := f.rdb.Get(ctx, key).Result()
		if err == redis.Nil {
			continue // its life has ended
		}
		must(f.t, err)
		if life, err := f.rdb.PTTL(ctx, key).Result(); err != nil || life == -1 {
			findings = append(findings, fmt.Sprintf("%s has no lifetime (%v)", key, err))
		}
		switch {
		case leased(entry):
			findings = append(findings, fmt.Sprintf("%s holds a lease: %q", key, entry))
		case entry[writerAt:writerAt+tokenSize] != noToken:
			values++
		}
	}
	must(f.t, found.Err())
	if values == 0 {
		findings = append(findings, "no value is left in Redis to look at")
	}
	return findings
}
