package rebuild

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// rig is one key on one server, and the scripts on it. After each of them it checks that the
// key has a lifetime.
type rig struct {
	t     *testing.T
	c     *redis.Client
	key   Key
	wakes *redis.PubSub // nil until listen
	tick  func()        // lets the server's clock move
}

func newRig(t *testing.T, c *redis.Client) *rig {
	return &rig{t: t, c: c, key: keyOf(redistest.Prefix(t)), tick: func() {}}
}

// onServers runs f on a real server and on the one that the other tests have in their bubbles:
// what is shown there holds only as far as the two agree.
func onServers(t *testing.T, f func(*rig)) {
	t.Helper()
	t.Run("real", func(t *testing.T) { onReal(t, f) })
	t.Run("bubble", func(t *testing.T) { passing(t, f) })
}

func onReal(t *testing.T, f func(*rig)) {
	t.Parallel()
	f(newRig(t, redistest.Shared(t).Client(t)))
}

// passing runs f in a bubble, where time can pass.
func passing(t *testing.T, f func(*rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, redistest.Bubble(t).Client(t))
		r.tick = func() { time.Sleep(time.Microsecond) }
		f(r)
	})
}

// token is a token by a short name.
func token(name string) string {
	return name + strings.Repeat("-", len(noToken)-len(name))
}

func (r *rig) do(script *redis.Script, args ...any) reply {
	r.t.Helper()
	answer, err := r.try(script, args...)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer
}

func (r *rig) try(script *redis.Script, args ...any) (reply, error) {
	r.t.Helper()
	values, err := server{}.call(r.key, script, args...).Run(r.t.Context(), r.c)
	if err != nil {
		return reply{}, named(err)
	}
	answer, err := readReply(values, r.key.Hash)
	r.lives()
	return answer, err
}

// lives checks that the key is not there for ever.
func (r *rig) lives() {
	r.t.Helper()
	if left := r.c.PTTL(r.t.Context(), r.key.Redis).Val(); left == -1 {
		r.t.Fatal("the key has no lifetime")
	}
}

// asking is the arguments of an acquire; zero means the usual.
type asking struct {
	lease    time.Duration // 30 s
	have     string
	bar      Micros
	mode     Mode // Try
	notAfter Micros
}

func (r *rig) acquire(name string, a asking) reply {
	r.t.Helper()
	if a.lease == 0 {
		a.lease = 30 * time.Second
	}
	if a.mode == "" {
		a.mode = Try
	}
	return r.do(scripts.acquire, token(name), millis(a.lease), a.have, int64(a.bar), string(a.mode), int64(a.notAfter))
}

// lease acquires, and returns the start.
func (r *rig) lease(name string) Micros {
	r.t.Helper()
	answer := r.acquire(name, asking{})
	equal(r.t, "status", answer.Status, statusLeased)
	return answer.Entry.Start
}

// flagged acquires for name, and makes somebody wait for it.
func (r *rig) flagged(name string) Micros {
	r.t.Helper()
	start := r.lease(name)
	equal(r.t, "status of the waiter", r.acquire("waiter", asking{mode: Wait}).Status, statusHeld)
	return start
}

func (r *rig) renew(name string, start Micros, lease time.Duration) reply {
	r.t.Helper()
	return r.do(scripts.renew, token(name), int64(start), millis(lease))
}

// storing is what a commit stores; zero means the usual.
type storing struct {
	kind                  Kind // V
	fresh, stale, ifError time.Duration
	row                   uint64
	setter, anew          bool
	holdDown              Millis
	cost                  time.Duration
}

func (r *rig) commit(name string, start Micros, value string, s storing) reply {
	r.t.Helper()
	return r.do(scripts.commit, r.commitArgs(name, start, value, s)...)
}

func (r *rig) commitArgs(name string, start Micros, value string, s storing) []any {
	if s.kind == 0 {
		s.kind = KindValue
	}
	if s.fresh == 0 {
		s.fresh, s.stale, s.ifError = time.Minute, 2*time.Minute, time.Hour
	}
	h := Header{Kind: s.kind, Codec: stringCodec, Identity: Identity{start, token(name)}, Row: s.row,
		Hash: r.key.Hash, Cost: s.cost, Variable: len(r.carried()), Body: len(value)}
	d := draft{fresh: s.fresh, stale: s.stale, ifError: s.ifError, holdDown: s.holdDown,
		content: content{row: s.row, setter: s.setter, anew: s.anew},
		text:    []byte(string(h.format()) + r.carried() + value)}
	return d.args(token(name), start, testPolicy())
}

// store puts a value under the key in the way of a load.
func (r *rig) store(name, value string, s storing) Identity {
	r.t.Helper()
	start := r.lease(name)
	equal(r.t, "status", r.commit(name, start, value, s).Status, statusCommitted)
	return Identity{start, token(name)}
}

func (r *rig) pass(name string, start Micros, d time.Duration) reply {
	r.t.Helper()
	return r.do(scripts.pass, token(name), int64(start), millis(d))
}

// failing is the arguments of a fail; zero means the usual.
type failing struct {
	backoff time.Duration // 10 s
	longest time.Duration // ten times that
	jitter  int           // 1000: none
	message string
}

func (r *rig) fail(name string, start Micros, f failing) reply {
	r.t.Helper()
	if f.backoff == 0 {
		f.backoff = 10 * time.Second
	}
	if f.longest == 0 {
		f.longest = 10 * f.backoff
	}
	if f.jitter == 0 {
		f.jitter = 1000
	}
	return r.do(scripts.fail, token(name), int64(start), millis(f.backoff), millis(f.longest), f.jitter, f.message)
}

func (r *rig) release(name string, start Micros) reply {
	r.t.Helper()
	return r.do(scripts.release, token(name), int64(start), 0)
}

// releaseBut gives back whatever lease name has, but the one that began at except.
func (r *rig) releaseBut(name string, except Micros) reply {
	r.t.Helper()
	return r.do(scripts.release, token(name), 0, int64(except))
}

func (r *rig) delete(holdDown time.Duration) reply {
	r.t.Helper()
	return r.do(scripts.remove, millis(holdDown))
}

func (r *rig) expire(holdDown time.Duration) reply {
	r.t.Helper()
	return r.do(scripts.expire, millis(holdDown))
}

// seizing is the arguments of a seize; zero means the usual.
type seizing struct {
	lease    time.Duration // 30 s
	row      uint64
	holdDown time.Duration
	notAfter Micros
}

func (r *rig) seize(name string, s seizing) reply {
	r.t.Helper()
	if s.lease == 0 {
		s.lease = 30 * time.Second
	}
	return r.do(scripts.seize, token(name), millis(s.lease), rowText(s.row), millis(s.holdDown), int64(s.notAfter))
}

// put writes an entry as it might stand there, with the lifetime that it should have had.
func (r *rig) put(h Header, rest string) {
	r.t.Helper()
	h.Hash = r.key.Hash
	if h.Kind == KindFailed {
		h.Variable = len(rest)
	} else {
		h.Body = len(rest)
		rest = r.carried() + rest
		h.Variable = len(r.carried())
	}
	r.putRaw(string(h.format())+rest, time.Hour)
}

// carried is what an entry says of the namespace's generation, if a node has begun one.
func (r *rig) carried() string {
	g := r.c.Get(r.t.Context(), "!").Val()
	if g == "" {
		return ""
	}
	return g[:numberWidth]
}

func (r *rig) putRaw(text string, life time.Duration) {
	r.t.Helper()
	must(r.t, r.c.Set(r.t.Context(), r.key.Redis, text, life).Err())
}

// raw is what stands under the key, or "".
func (r *rig) raw() string {
	r.t.Helper()
	text, err := r.c.Get(r.t.Context(), r.key.Redis).Result()
	if err != nil && err != redis.Nil {
		r.t.Fatal(err)
	}
	return text
}

// entry is what stands under the key, which must be an entry.
func (r *rig) entry() Entry {
	r.t.Helper()
	e, err := parseEntry(r.raw(), r.key.Hash)
	must(r.t, err)
	return e
}

// remove deletes the key as somebody would who knows nothing of us.
func (r *rig) remove() {
	r.t.Helper()
	must(r.t, r.c.Del(r.t.Context(), r.key.Redis).Err())
}

func (r *rig) gone() {
	r.t.Helper()
	equal(r.t, "what stands there", r.raw(), "")
}

// life is the lifetime that the key has left.
func (r *rig) life() time.Duration {
	r.t.Helper()
	return r.c.PTTL(r.t.Context(), r.key.Redis).Val()
}

// now is the server's time.
func (r *rig) now() Micros {
	r.t.Helper()
	now, err := r.c.Time(r.t.Context()).Result()
	must(r.t, err)
	return Micros(now.UnixMicro())
}

// in is the instant d from now, on the server's clock.
func (r *rig) in(d time.Duration) Millis { return Millis((int64(r.now()) + d.Microseconds()) / 1000) }

// after checks that the instant m lies d after the server's time now, which a script told.
func after(t *testing.T, what string, m Millis, now Micros, d time.Duration) {
	t.Helper()
	equal(t, what, m-Millis(now/1000), Millis(d/time.Millisecond))
}

// valued is a header of a value whose windows end so long from now, written by "writer".
func (r *rig) valued(fresh, stale, ifError time.Duration) Header {
	return Header{
		Kind: KindValue, Codec: stringCodec, Identity: Identity{r.now() - 5_000_000, token("writer")},
		Fresh: r.in(fresh), Stale: r.in(stale), IfError: r.in(ifError),
	}
}

// leased adds the lease of name to h: begun a second ago, and ending so long from now.
func (r *rig) leased(h Header, name string, left time.Duration) Header {
	h.Token, h.Start, h.LeaseUntil = token(name), r.now()-1_000_000, r.in(left)
	return h
}

// listen begins to count the wake-ups of the key.
func (r *rig) listen() {
	r.t.Helper()
	r.wakes = r.c.Subscribe(r.t.Context(), r.key.Channel)
	r.t.Cleanup(func() { _ = r.wakes.Close() })
	_, err := r.wakes.Receive(r.t.Context())
	must(r.t, err)
}

// woken is how many wake-ups were published since the last call. A message of its own, which
// comes after them, tells that all have come.
func (r *rig) woken() (n int) {
	r.t.Helper()
	const last = "that was all"
	must(r.t, r.c.Publish(r.t.Context(), r.key.Channel, last).Err())
	for ; ; n++ {
		m, err := r.wakes.ReceiveMessage(r.t.Context())
		must(r.t, err)
		if m.Payload == last {
			return n
		}
		equal(r.t, "payload of a wake-up", m.Payload, "")
	}
}

// differing names the fields in which two raw entries differ.
func differing(before, after string) string {
	var names []string
	for i, f := range fields {
		if before[offsets[i]:offsets[i+1]] != after[offsets[i]:offsets[i+1]] {
			names = append(names, f.name)
		}
	}
	if before[HeaderSize:] != after[HeaderSize:] {
		names = append(names, "rest")
	}
	return fmt.Sprint(names)
}
