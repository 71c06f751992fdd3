package cache_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// settings are those of a case that names no others. The jitter and early refresh are off so that
// instants are exact.
func settings() cache.Options {
	return cache.Options{
		TTL:                  10 * time.Second,
		TTLJitter:            cache.Off,
		EarlyRefresh:         cache.Off,
		StaleWhileRevalidate: 30 * time.Second,
		NegativeTTL:          time.Second,
		LocalTTL:             time.Second,
		Lease:                2 * time.Second,
		LoadTimeout:          5 * time.Second,
		RedisTimeout:         100 * time.Millisecond,
		LocalMaxBytes:        4 << 20, // the larger ones take long to make
	}
}

// fleet is some nodes on one Redis, in front of one source. When its test ends it checks that
// no key lives for ever and that no lease outlives two of its lengths.
type fleet struct {
	*source
	t     *testing.T
	mini  *redistest.BubbleServer // nil outside of a bubble
	probe redis.UniversalClient   // of nobody's node
	dial  func() (redis.UniversalClient, *redistest.Link)

	options cache.Options
	nodes   []*node
	checked sync.Once

	mu       sync.Mutex // guards what follows
	banned   map[string]string
	commands map[string]int
}

// node is one cache with a client of its own.
type node struct {
	*cache.Cache[string, string]
	client redis.UniversalClient
	link   *redistest.Link   // its wire, in a bubble
	faults *redistest.Faults // on its client
}

// inBubble runs body in a bubble, with so many nodes.
func inBubble(t *testing.T, nodes int, o cache.Options, body func(*testing.T, *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := redistest.Bubble(t)
		f := newFleet(t, b.Client(t), o, func() (redis.UniversalClient, *redistest.Link) {
			l := b.Link()
			return l.Client(t, roomy), l
		})
		f.mini = b
		f.grow(nodes)
		body(t, f)
	})
}

// roomy keeps a client from waiting for a connection: go-redis's queue for them holds timers that
// outlive a bubble.
func roomy(o *redis.Options) { o.PoolSize = 2000 }

// onServer makes nodes on a server outside of a bubble.
func onServer(t *testing.T, s *redistest.Server, nodes int, o cache.Options) *fleet {
	t.Helper()
	f := newFleet(t, s.Client(t), o, func() (redis.UniversalClient, *redistest.Link) { return s.Client(t), nil })
	f.grow(nodes)
	return f
}

func newFleet(t *testing.T, probe redis.UniversalClient, o cache.Options, dial func() (redis.UniversalClient, *redistest.Link)) *fleet {
	return &fleet{source: newSource(), t: t, probe: probe, dial: dial, options: o,
		banned: map[string]string{}, commands: map[string]int{}}
}

// grow adds nodes. Each test has its own names: on a shared server channels are everybody's.
func (f *fleet) grow(nodes int) {
	f.t.Helper()
	for range nodes {
		client, link := f.dial()
		f.add(client, link, f.options)
	}
}

// add adds a node on a client.
func (f *fleet) add(client redis.UniversalClient, link *redistest.Link, o cache.Options) *node {
	f.t.Helper()
	n := &node{client: client, link: link, faults: redistest.NewFaults(f.t)}
	client.AddHook(n.faults)
	client.AddHook(watcher{f})
	o.Redis = client
	var err error
	n.Cache, err = cache.New(f.name(), loader.Func(f.load), o)
	must(f.t, err)
	f.nodes = append(f.nodes, n)
	f.t.Cleanup(func() {
		f.checked.Do(f.check) // while all nodes live
		must(f.t, n.Close())
	})
	return n
}

func (f *fleet) name() string {
	name, _, _ := strings.Cut(strings.NewReplacer("/", "-", "'", "").Replace(f.t.Name()), "_")
	return name
}

// check is the end of every test with Redis. The time passes for free in a bubble.
func (f *fleet) check() {
	f.t.Helper()
	if f.t.Failed() {
		return
	}
	limit := 2 * f.options.Lease
	if f.mini != nil {
		<-time.After(limit)
		synctest.Wait()
	}
	redistest.Eventually(f.t, limit, func() bool { return f.leases() == 0 }, "no lease is left")
	for key, left := range f.lifetimes() {
		if left < 0 {
			f.t.Errorf("%q has no lifetime", key)
		}
	}
}

// keys are all keys in Redis.
func (f *fleet) keys() []string {
	f.t.Helper()
	ctx := context.Background()
	var mu sync.Mutex
	var all []string
	scan := func(ctx context.Context, c *redis.Client) error {
		for i := c.Scan(ctx, 0, "*", 1000).Iterator(); i.Next(ctx); {
			mu.Lock()
			if !strings.Contains(i.Val(), "!") { // what caches have in common
				all = append(all, i.Val())
			}
			mu.Unlock()
		}
		return nil
	}
	var err error
	switch c := f.probe.(type) {
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, scan)
	case *redis.Client:
		err = scan(ctx, c)
	default:
		f.t.Fatalf("cannot list the keys of a %T", c)
	}
	must(f.t, err)
	return all
}

// lifetimes are what all keys in Redis have left; -1 for one that lives for ever.
func (f *fleet) lifetimes() map[string]time.Duration {
	f.t.Helper()
	keys := f.keys()
	left := make(map[string]time.Duration, len(keys))
	cmds := map[string]*redis.DurationCmd{}
	_, err := f.probe.Pipelined(context.Background(), func(p redis.Pipeliner) error {
		for _, k := range keys {
			cmds[k] = p.PTTL(context.Background(), k)
		}
		return nil
	})
	must(f.t, err)
	for k, cmd := range cmds {
		if cmd.Val() != -2 { // gone meanwhile
			left[k] = cmd.Val()
		}
	}
	return left
}

// Where the lease stands in an entry: token, start in microseconds, end in milliseconds.
const (
	tokenAt = 133
	startAt = tokenAt + 22
	untilAt = startAt + 13
	leaseAt = untilAt + 11 // its end
)

// leases counts the entries whose lease is live.
func (f *fleet) leases() (n int) {
	f.t.Helper()
	for _, k := range f.keys() {
		if f.lease(k) != "" {
			n++
		}
	}
	return n
}

// lease is the token of the live lease in the entry under a Redis key, or empty.
func (f *fleet) lease(redisKey string) string {
	f.t.Helper()
	head, err := f.probe.GetRange(context.Background(), redisKey, 0, leaseAt-1).Result()
	if err != nil || len(head) < leaseAt {
		return "" // of another type, or not an entry
	}
	token := head[tokenAt:startAt]
	until, err := strconv.ParseInt(head[untilAt:leaseAt], 16, 64)
	if err != nil || strings.Trim(token, ".") == "" || until <= time.Now().UnixMilli() {
		return ""
	}
	return token
}

// raw is the whole entry of a key, or empty.
func (f *fleet) raw(key string) string {
	f.t.Helper()
	text, err := f.probe.Get(context.Background(), f.nodes[0].RedisKey(key)).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		f.t.Fatal(err)
	}
	return text
}

// stores checks which value Redis holds of a key.
func (f *fleet) stores(key, want string) {
	f.t.Helper()
	if raw := f.raw(key); !strings.HasSuffix(raw, want) {
		f.t.Errorf("Redis holds %q of %q, want %s", raw, key, want)
	}
}

// never fails the test if any command of a node leaves value in the entry of key. The last call
// counts.
func (f *fleet) never(key, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.banned)
	f.banned[f.nodes[0].RedisKey(key)] = value
}

// watcher counts the commands of all nodes, and looks at the banned entries after each.
type watcher struct{ f *fleet }

func (w watcher) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w watcher) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.f.count(cmd)
		defer w.f.look()
		return next(ctx, cmd)
	}
}

func (w watcher) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.f.count(cmds...)
		defer w.f.look()
		return next(ctx, cmds)
	}
}

func (f *fleet) count(cmds ...redis.Cmder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range cmds {
		f.commands[c.Name()]++
	}
}

func (f *fleet) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, value := range f.banned {
		if raw, err := f.mini.Mini().Get(key); err == nil && strings.HasSuffix(raw, value) {
			f.t.Errorf("Redis holds %s again", value)
		}
	}
}

// begun counts the commands of these names that the nodes' clients were given.
func (f *fleet) begun(names ...string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		n += f.commands[name]
	}
	return n
}

// sum adds up one counter of all nodes.
func (f *fleet) sum(counter func(cache.Stats) int64) (n int64) {
	for _, node := range f.nodes {
		n += counter(node.Stats())
	}
	return n
}

// source is the database behind all nodes of a test. A query reads the row's version as it
// begins, and brings a value that names its key and that version.
type source struct {
	// query is what a query does between reading and answering; n counts the queries of its key
	// from 1. Set it before the first. By default it takes 200 ms.
	query func(ctx context.Context, key string, n int) error

	mu        sync.Mutex // guards what follows
	writes    map[string]int
	counts    map[string]int
	running   map[string]int
	most      int // at once, of one key
	cancelled int // queries whose context had ended before they did
}

func newSource() *source {
	return &source{query: takes(200 * time.Millisecond),
		writes: map[string]int{}, counts: map[string]int{}, running: map[string]int{}}
}

// value is what the source holds of key after so many writes.
func value(key string, version int) string { return key + "@" + strconv.Itoa(version) }

// takes is a query that obeys its context.
func takes(d time.Duration) func(context.Context, string, int) error {
	return func(ctx context.Context, _ string, _ int) error { return pass(ctx, d) }
}

// pass lets d go by, or less if ctx ends.
func pass(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *source) load(ctx context.Context, key string) (string, error) {
	n, version := s.begin(key)
	defer s.end(ctx, key)
	if err := s.query(ctx, key, n); err != nil {
		return "", err
	}
	return value(key, version), nil
}

func (s *source) begin(key string) (n, version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[key]++
	s.running[key]++
	s.most = max(s.most, s.running[key])
	return s.counts[key], 1 + s.writes[key]
}

func (s *source) end(ctx context.Context, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[key]--
	if ctx.Err() != nil {
		s.cancelled++
	}
}

// write makes the next version of key and returns the value that it has now.
func (s *source) write(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes[key]++
	return value(key, 1+s.writes[key])
}

// queries is how many there have been, of one key or of all.
func (s *source) queries(keys ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(keys) == 0 {
		for _, c := range s.counts {
			n += c
		}
	}
	for _, k := range keys {
		n += s.counts[k]
	}
	return n
}

func (s *source) peak() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.most
}

// got is what one caller got, and how long it took.
type got struct {
	node  *node
	value string
	err   error
	took  time.Duration
}

// calls are callers of Get that run at once.
type calls struct {
	running sync.WaitGroup
	mu      sync.Mutex // guards all
	all     []got
}

// start starts so many callers, on the nodes in turn.
func start(ctx context.Context, count int, key string, nodes ...*node) *calls {
	c := &calls{}
	for i := range count {
		c.get(ctx, nodes[i%len(nodes)], key)
	}
	return c
}

// get starts one more.
func (c *calls) get(ctx context.Context, n *node, key string) {
	began := time.Now()
	c.running.Go(func() {
		v, err := n.Get(ctx, key)
		g := got{n, v, err, time.Since(began)}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = append(c.all, g)
	})
}

// wait returns what all have got.
func (c *calls) wait() []got {
	c.running.Wait()
	return c.all
}

// allGet checks that every caller got a value, and when.
func allGet(t *testing.T, all []got, want string, after time.Duration) {
	t.Helper()
	for _, g := range all {
		if g.value != want || g.err != nil || g.took != after {
			t.Fatalf("a caller got %q, %v after %v, want %s after %v", g.value, g.err, g.took, want, after)
		}
	}
}

// gets checks what one call brings.
func gets(t *testing.T, n *node, key, want string) {
	t.Helper()
	if v, err := n.Get(t.Context(), key); v != want || err != nil {
		t.Errorf("got %q, %v, want %s", v, err, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// within checks that what took so long took no longer than it may.
func within(t *testing.T, what string, took, limit time.Duration) {
	t.Helper()
	if took > limit {
		t.Errorf("%s: took %v, may take %v", what, took, limit)
	}
}

// soak is the full number of rounds under LEVEE_SOAK=1, and else the short one.
func soak(short, full int) int {
	if os.Getenv("LEVEE_SOAK") == "1" {
		return full
	}
	return short
}

func TestTheFleetSeesLeasesAndLifetimes(t *testing.T) {
	inBubble(t, 1, settings(), func(t *testing.T, f *fleet) {
		c := start(t.Context(), 1, "k", f.nodes...)
		time.Sleep(100 * time.Millisecond)
		equal(t, "leases during a load", f.leases(), 1)
		allGet(t, c.wait(), value("k", 1), 200*time.Millisecond)
		equal(t, "leases after it", f.leases(), 0)
		equal(t, "lifetimes", fmt.Sprint(f.lifetimes()), fmt.Sprintf("map[%s:40s]", f.nodes[0].RedisKey("k")))
		f.never("k", value("k", 2))
		must(t, f.probe.Set(t.Context(), "forever", "x", 0).Err())
		equal(t, "lifetime of a key without one", f.lifetimes()["forever"] < 0, true)
		must(t, f.probe.Del(t.Context(), "forever").Err())
	})
}
