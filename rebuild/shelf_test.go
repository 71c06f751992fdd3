package rebuild

import (
	"context"
	"errors"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// stringCodec is the only codec that a shelf reads.
const stringCodec byte = 's'

// shelf is the simplest Values: strings in a map, from a database that all nodes share.
type shelf struct {
	db *database

	mu      sync.Mutex // guards what follows
	kept    map[string]*text
	history []string // the values that were kept, of all keys
}

// text is a string in a node's memory.
type text struct {
	meta  Meta
	value string
}

func (c *text) Meta() *Meta { return &c.meta }

func newShelf(db *database) *shelf { return &shelf{db: db, kept: map[string]*text{}} }

func (s *shelf) Lookup(k Key) Copy {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.kept[k.Text]; c != nil {
		return c
	}
	return nil
}

func (s *shelf) Keep(k Key, c Copy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept[k.Text] = c.(*text)
	s.history = append(s.history, c.(*text).value)
}

func (s *shelf) Drop(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.kept, k.Text)
}

func (s *shelf) Hash(text string) uint64 { return keyOf(text).Hash }

func (s *shelf) DropAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.kept)
}

func (s *shelf) Load(ctx context.Context, k Key, base Copy, age time.Duration, done func(Outcome, error)) {
	loader.Call(ctx, loader.Func(s.db.load), k.Text, nil, func(r loader.Result[string], err error) {
		if err != nil {
			done(Outcome{}, err)
			return
		}
		o := Outcome{Copy: &text{value: r.Value}}
		if s.db.answer != nil {
			s.db.answer(base, age, &o)
		}
		done(o, nil)
	})
}

func (s *shelf) Encode(c Copy) (byte, []byte, error) {
	if v := c.(*text).value; v != unencodable {
		return stringCodec, []byte(v), nil
	}
	return 0, nil, errors.New("it cannot be encoded")
}

// unencodable is a value that Encode refuses.
const unencodable = "unencodable"

func (s *shelf) Decode(_ Key, codec byte, payload string, stamp Stamp) (Copy, error) {
	if codec != stringCodec {
		return nil, ErrOtherCodec
	}
	return stamped(payload, stamp), nil
}

func (s *shelf) Stamped(_ Key, c Copy, stamp Stamp) Copy {
	if c == nil {
		return stamped("", stamp)
	}
	return stamped(c.(*text).value, stamp)
}

func stamped(value string, stamp Stamp) *text {
	return &text{value: value, meta: Meta{Stamp: stamp}}
}

// database is what the loaders of all nodes ask. A load reads when it begins, and then takes
// its time: what is written meanwhile it has not seen.
type database struct {
	mu      sync.Mutex // guards everything below
	value   string
	err     error
	takes   time.Duration
	deaf    bool                                           // loads go on when their context has ended
	answer  func(base Copy, age time.Duration, o *Outcome) // changes what a load answers; set before any
	loads   int
	running int
	most    int           // that ever ran at once
	stop    chan struct{} // if not nil, loads wait for it to be closed
}

func newDatabase(value string) *database { return &database{value: value} }

func (db *database) load(ctx context.Context, key string) (string, error) {
	value, takes, stop, err := db.begin()
	defer db.end()
	if stop != nil {
		select {
		case <-stop:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	if takes > 0 {
		if err := db.work(ctx, takes); err != nil {
			return "", err
		}
	}
	return value, err
}

func (db *database) begin() (string, time.Duration, chan struct{}, error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.loads++
	db.running++
	db.most = max(db.most, db.running)
	return db.value, db.takes, db.stop, db.err
}

func (db *database) end() {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.running--
}

func (db *database) work(ctx context.Context, takes time.Duration) error {
	t := time.NewTimer(takes)
	defer t.Stop()
	db.mu.Lock()
	if db.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	db.mu.Unlock()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// set writes to the database: loads that begin now see it.
func (db *database) set(value string) { db.edit(func() { db.value = value }) }

func (db *database) edit(f func()) {
	db.mu.Lock()
	defer db.mu.Unlock()
	f()
}

// pause makes loads that begin now wait, until the returned function is called.
func (db *database) pause() (resume func()) {
	stop := make(chan struct{})
	db.edit(func() { db.stop = stop })
	return sync.OnceFunc(func() {
		db.edit(func() {
			if db.stop == stop {
				db.stop = nil
			}
		})
		close(stop)
	})
}

func (db *database) count() int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.loads
}

// testNode is a Node with a shelf, its own client and faults on it.
type testNode struct {
	*Node
	t      *testing.T
	shelf  *shelf
	client *redis.Client
	faults *redistest.Faults
}

// testPolicy has no jitter, so that tests can say when something happens.
func testPolicy() Policy {
	return Policy{
		TTL:           time.Minute,
		Stale:         time.Minute,
		IfError:       time.Hour,
		NegativeTTL:   5 * time.Second,
		Backoff:       500 * time.Millisecond,
		LoadTimeout:   30 * time.Second,
		Lease:         3 * time.Second,
		LocalTTL:      time.Second,
		RedisTimeout:  250 * time.Millisecond,
		MaxLoads:      16,
		MaxValueBytes: 1 << 20,
		Redact:        error.Error,
		Logger:        slog.New(slog.DiscardHandler),
	}
}

// patient is for nodes outside a bubble: what is slow there is the machine.
func patient(p *Policy) { p.RedisTimeout, p.Lease = longEnough, 2*longEnough }

// newNode makes a node with a client of its own to b. It knows the server's clock and the
// server its scripts, so that tests can count on single commands.
func newNode(t *testing.T, b *redistest.BubbleServer, db *database, edit ...func(*Policy)) *testNode {
	t.Helper()
	n := nodeOn(t, b.Link().Client(t, func(o *redis.Options) { o.MaxRetries = -1 }), db, edit...)
	n.warm()
	return n
}

func nodeOn(t *testing.T, client *redis.Client, db *database, edit ...func(*Policy)) *testNode {
	t.Helper()
	l, err := link.Open(client)
	must(t, err)
	n := &testNode{t: t, shelf: newShelf(db), client: client, faults: redistest.NewFaults(t)}
	client.AddHook(n.faults)
	n.Node = New(l, n.shelf, edited(edit))
	if n.stream == nil { // others are silent, and it knows
		n.trust = link.Always()
	}
	t.Cleanup(func() {
		n.faults.Clear()
		n.Close()
		n.clean()
		l.Close()
	})
	return n
}

// lonelyNode is a node without Redis.
func lonelyNode(t *testing.T, db *database, edit ...func(*Policy)) *testNode {
	n := &testNode{t: t, shelf: newShelf(db)}
	n.Node = New(nil, n.shelf, edited(edit))
	t.Cleanup(func() {
		n.Close()
		n.clean()
	})
	return n
}

func edited(edit []func(*Policy)) Policy {
	p := testPolicy()
	for _, f := range edit {
		f(&p)
	}
	return p
}

func (n *testNode) warm() {
	loadScripts(n.t, n.client)
	if _, _, err := n.Peek(n.t.Context(), keyOf("warm")); err != nil {
		n.t.Fatal(err)
	}
	b := n.budget()
	must(n.t, n.learn(n.t.Context(), &b, n.space))
}

// clean checks that a closed node has left nothing behind.
func (n *testNode) clean() {
	if !n.running.empty() {
		n.t.Errorf("a closed node still has something under way")
	}
	if len(n.inLine.last) > 0 {
		n.t.Errorf("a closed node still has %d flights in line", len(n.inLine.last))
	}
	redistest.Eventually(n.t, 5*time.Second, func() bool { return n.flights.waiting() == 0 }, "nobody waits for a closed node")
	if len(n.jobs) > 0 {
		n.t.Errorf("a closed node still has %d jobs", len(n.jobs))
	}
}

// waiting is how many flights somebody waits for.
func (f *flights) waiting() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.crowds)
}

func loadScripts(t *testing.T, c *redis.Client) {
	t.Helper()
	for _, s := range allScripts() {
		must(t, s.Load(t.Context(), c).Err())
	}
	must(t, scripts.generation.Load(t.Context(), c).Err())
}

func allScripts() map[string]*redis.Script {
	return map[string]*redis.Script{
		"acquire": scripts.acquire, "renew": scripts.renew, "commit": scripts.commit,
		"pass": scripts.pass, "fail": scripts.fail, "release": scripts.release,
		"delete": scripts.remove, "expire": scripts.expire, "seize": scripts.seize,
	}
}

func keyOf(text string) Key {
	h := fnv.New64a()
	h.Write([]byte(text))
	return Key{Text: text, Hash: h.Sum64(), Redis: "levee1:test:" + text, Channel: "levee1~wake:" + text, User: text}
}

// got is what a caller got.
type got struct {
	Answer
	err  error
	took time.Duration
}

// value is the answer's text, or its error's.
func (g got) value() string {
	switch {
	case g.err != nil:
		return "error: " + g.err.Error()
	case g.State == NotFound:
		return "not found"
	}
	return g.Copy.(*text).value
}

// everKept tells whether the node has kept value for any key.
func (n *testNode) everKept(value string) bool {
	n.shelf.mu.Lock()
	defer n.shelf.mu.Unlock()
	return slices.Contains(n.shelf.history, value)
}

// call is a call in a goroutine of its own.
type call struct {
	t    *testing.T
	done chan got
}

func start(t *testing.T, f func() (Answer, error)) call {
	c := call{t: t, done: make(chan got, 1)}
	began := time.Now()
	go func() {
		a, err := f()
		c.done <- got{a, err, time.Since(began)}
	}()
	return c
}

// now returns what the call has come to by now; it is to be used in a bubble.
func (c call) now() got {
	c.t.Helper()
	synctest.Wait()
	select {
	case g := <-c.done:
		return g
	default:
		c.t.Fatal("the call has not returned")
		return got{}
	}
}

// waits checks that the call has not returned; it is to be used in a bubble.
func (c call) waits() {
	c.t.Helper()
	synctest.Wait()
	if len(c.done) > 0 {
		g := <-c.done
		c.t.Fatalf("the call has returned %q already", g.value())
	}
}

func (c call) wait() got { return <-c.done }

func (n *testNode) get(k Key) got { return n.goGet(k).wait() }

func (n *testNode) goGet(k Key) call {
	return start(n.t, func() (Answer, error) { return n.Get(n.t.Context(), k, Want{}) })
}

func (n *testNode) goFresh(k Key) call {
	return start(n.t, func() (Answer, error) { return n.Get(n.t.Context(), k, Want{Fresh: true}) })
}

func (n *testNode) goRefresh(k Key) call {
	return start(n.t, func() (Answer, error) { return n.Refresh(n.t.Context(), k) })
}

func (n *testNode) set(k Key, v string) error {
	return n.Set(n.t.Context(), k, &text{value: v}, Written{})
}

func (n *testNode) delete(k Key) error { return n.Delete(n.t.Context(), []Key{k}) }

func (n *testNode) expire(k Key) error { return n.Expire(n.t.Context(), []Key{k}) }

// kept is what the node holds of k in its memory, or "".
func (n *testNode) kept(k Key) string {
	if c := n.shelf.Lookup(k); c != nil {
		return c.(*text).value
	}
	return ""
}
