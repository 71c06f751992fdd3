package lock

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/internal/redistest"
)

// scene is where short histories are made: some clients of one server, each with faults of its own.
type scene struct {
	*recorder
	t       *testing.T
	scripts trio
	prefix  string
	clients []*actor
	number  int
}

// actor is a client that runs scripts by chance.
type actor struct {
	*scene
	rand   *rand.Rand
	client *redis.Client
	faults *redistest.Faults
	late   []*redistest.Rule
	name   string
	ahead  int64 // of the server's clock, roughly, in µs
}

func newScene(t *testing.T, s trio) *scene {
	c := &scene{recorder: newRecorder(s), t: t, scripts: s, prefix: redistest.Prefix(t)}
	server := redistest.Shared(t)
	for i := range 4 {
		a := &actor{scene: c, name: strings.Repeat(string(rune('a'+i)), 3), client: server.Client(t), faults: redistest.NewFaults(t)}
		a.client.AddHook(c.recorder)
		a.client.AddHook(a.faults)
		must(t, a.client.Ping(t.Context()).Err())
		c.clients = append(c.clients, a)
	}
	return c
}

// play makes one history: all clients at once, on one lock. Some begin with what a server left whose clock
// was ahead, in some the key is deleted now and then: then nothing else can make fences grow.
func (c *scene) play(seed uint64) {
	c.t.Helper()
	c.number++
	c.anew()
	key := fmt.Sprintf("lk:%s:%d", c.prefix, c.number)
	ctx, first := c.t.Context(), c.clients[0].client
	now, err := first.Time(ctx).Result()
	must(c.t, err)
	if seed%3 == 1 {
		w := free
		w.what, w.fence = present, now.UnixMicro()+3_600_000_000
		called := c.now()
		must(c.t, first.Set(ctx, key, w.wire(), 0).Err())
		c.add(step{kind: toSeed, key: key, fence: w.fence}, outcome{}, called, c.now())
	}
	var all sync.WaitGroup
	for i, a := range c.clients {
		a.rand = rand.New(rand.NewPCG(seed, uint64(i)))
		a.ahead = now.UnixMicro() - c.now()/1000
		all.Go(func() { a.act(key, seed%3 == 2) })
	}
	all.Wait()
	must(c.t, first.Del(ctx, key).Err())
}

func (a *actor) act(key string, deletes bool) {
	for i := range 14 {
		if a.rand.IntN(12) == 0 {
			a.disturb()
		}
		if deletes && a.rand.IntN(10) == 0 {
			called := a.now()
			must(a.t, a.client.Del(a.t.Context(), key).Err())
			a.add(step{kind: toDelete, key: key}, outcome{}, called, a.now())
		}
		a.run(key, a.token(i))
	}
	a.settle()
}

// token is the one of the last attempts, or one of another client's: every client begins a new one now and then.
func (a *actor) token(i int) string {
	name := a.name
	if a.rand.IntN(5) == 0 {
		name = a.clients[a.rand.IntN(len(a.clients))].name
	}
	return token(fmt.Sprint(name, i/4))
}

func (a *actor) run(key, token string) {
	lease := int64(1 + a.rand.IntN(5))
	call := link.ScriptCall{Key: key}
	switch n := a.rand.IntN(10); {
	case n < 5:
		notAfter := int64(0)
		if a.rand.IntN(4) == 0 {
			notAfter = a.ahead + a.now()/1000 + int64(a.rand.IntN(600)) - 100
		}
		waits := int64(a.rand.IntN(2)) * alive.Milliseconds()
		call.Script, call.Args = a.scripts.acquire, []any{token, "in:", "0", lease, holderText(""), noToken, waits, flag(a.rand.IntN(6) == 0), notAfter}
	case n < 7:
		call.Script, call.Args = a.scripts.renew, []any{token, "in:", "0", lease}
	default:
		call.Script, call.Args = a.scripts.release, []any{token, "in:", "0"}
	}
	_, _ = call.Run(a.t.Context(), a.client)
}

// disturb lets the next command lose its answer, or stay in the network for a while, or for ever.
func (a *actor) disturb() {
	eval := redistest.Name("evalsha")
	switch a.rand.IntN(3) {
	case 0:
		a.faults.LoseReply(eval).Times(1)
	case 1:
		a.late = append(a.late, a.faults.Late(eval).Times(1))
	default:
		a.settle()
	}
}

// settle lets arrive what is late.
func (a *actor) settle() {
	for _, r := range a.late {
		r.Release(a.t.Context())
	}
	a.late = nil
}

func TestT02TheScriptsMakeLinearHistories(t *testing.T) {
	c := newScene(t, genuine)
	outcomes := map[string]int{}
	seed := *lockSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	t.Logf("-lock.seed=%d", seed)
	undecided := 0
	for i := range histories() {
		c.play(seed + uint64(i))
		if !c.fine(t, time.Second) {
			undecided++
		}
		count(outcomes, c.history())
	}
	if undecided > histories()/50 {
		t.Errorf("of %d histories %d are undecided", histories(), undecided)
	}
	t.Log(outcomes)
	for want := range strings.FieldsSeq(`acquire:acquired acquire:busy acquire:late acquire:abandoned acquire:? renew:held renew:lost renew:?
		release:released release:gone release:left release:? DEL: SET:`) {
		if outcomes[want] == 0 {
			t.Errorf("nothing came to %q", want)
		}
	}
}

func histories() int {
	if soaks() {
		return 20_000
	}
	return 400
}

// count counts what the commands came to.
func count(outcomes map[string]int, history []porcupine.Operation) {
	for _, op := range history {
		status := op.Output.(outcome).status
		if op.Output.(outcome).unknown {
			status = "?"
		}
		outcomes[string(op.Input.(step).kind)+":"+status]++
	}
}
