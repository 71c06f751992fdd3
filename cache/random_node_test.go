package cache_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// randomNode is one cache with a client and a wire of its own, and what the reference has to
// know of them.
type randomNode struct {
	*cache.Cache[string, string]
	w      *randomWorld
	name   string
	client *redis.Client
	link   *redistest.Link
	faults *redistest.Faults
	frozen atomic.Bool // then it gets no new connection

	// Guarded by the world's mutex.
	rng        *rand.Rand
	gone       bool          // killed, or being closed
	dead       bool          // killed: nobody sees what it answers
	disturbed  int           // commands and faults under way that keep it from Redis
	recovering bool          // its breaker may be open still
	trouble    time.Duration // when it was last kept from Redis
	slowest    time.Duration // round trip
	loads      int64
	refreshing map[string]int        // calls of Refresh under way, by key
	asked      map[any]time.Duration // when an attempt to get a lease was first sent
	granted    map[string]bool       // the tokens of its leases; true until a load begins with one
	unanswered []func()              // revocations that a frozen wire may still deliver
}

func (n *randomNode) String() string { return n.name }

// newNode puts a new node in place i.
func (w *randomWorld) newNode(i int) {
	w.t.Helper()
	n := &randomNode{w: w, link: w.bubble.Link(), faults: redistest.NewFaults(w.t), trouble: math.MinInt64,
		refreshing: map[string]int{}, asked: map[any]time.Duration{}, granted: map[string]bool{}}
	n.client = n.link.Client(w.t, n.configure)
	n.client.AddHook(aroundHook(n.watch))
	n.client.AddHook(n.faults)
	n.client.AddHook(aroundHook(n.travel))
	o := w.o
	o.Redis = n.client
	var err error
	n.Cache, err = cache.New("r", loader.Revalidate(n.loadTagged), o)
	must(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	n.name = fmt.Sprint("n", i, strings.Repeat("'", w.replaced[i]))
	n.rng = rand.New(rand.NewPCG(w.seed, uint64(len(w.all))))
	w.replaced[i]++
	w.nodes[i] = n
	w.all = append(w.all, n)
}

// configure makes a client fit for a bubble: go-redis opens connections under locks, and a
// goroutine that waits for a lock stops the bubble's clock.
func (n *randomNode) configure(o *redis.Options) {
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if n.frozen.Load() {
			return nil, redistest.ErrTimeout
		}
		return dial(ctx, network, addr)
	}
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ReadTimeout = n.w.readTimeout
	o.ConnMaxIdleTime = time.Second // a wire cannot be asked whether it is cut
}

// suspicious is a round trip longer than any without a fault.
const suspicious = 30 * time.Millisecond

// probeAfter is how long a breaker stays open: then one call probes, and if that succeeds the
// node is as before.
const probeAfter = time.Second

// troubledSince tells whether something has kept n from Redis at t or later.
func (n *randomNode) troubledSince(t time.Duration) bool {
	return n.disturbed > 0 || n.recovering || n.trouble >= t
}

func (n *randomNode) troubledNow() { n.trouble, n.recovering = n.w.now(), true }

// disturb records that something keeps n from Redis until the call of done.
func (n *randomNode) disturb() (done func()) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.disturbed++
	return func() {
		n.w.mu.Lock()
		defer n.w.mu.Unlock()
		n.disturbed--
		n.troubledNow()
	}
}

// partition keeps n from Redis for a while of the bubble.
func (n *randomNode) partition(s randomStep) {
	done := n.disturb()
	defer done()
	n.note("partition: %v for %v", s.deed, s.span)
	switch s.deed {
	case doCut:
		n.link.Cut()
	case doRefuse:
		n.link.Refuse(true)
		time.Sleep(s.span)
		n.w.mu.Lock()
		defer n.w.mu.Unlock()
		n.link.Refuse(n.dead)
	case doFreeze:
		n.frozen.Store(true)
		n.link.Freeze()
		time.Sleep(s.span)
		n.link.Thaw()
		n.frozen.Store(false)
		time.Sleep(time.Millisecond) // what was written meanwhile is executed
		n.w.mu.Lock()
		defer n.w.mu.Unlock()
		n.answered()
	}
}

// leave ends for the reference what n was doing; false if it has gone already.
func (n *randomNode) leave(dead bool) bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.gone {
		return false
	}
	n.gone, n.dead = true, dead
	for _, l := range n.w.ledgers {
		for _, q := range l.queries {
			if q.node == n && !q.over(n.w.now()) {
				q.ended = n.w.now()
			}
		}
	}
	n.w.note("", "%v goes, killed: %v", n, dead)
	return true
}

// kill is kill -9, and a new node in its place.
func (n *randomNode) kill(place int) {
	if n.leave(true) {
		n.link.Refuse(true)
		n.w.newNode(place)
	}
}

// replace closes n, as a deployment does.
func (n *randomNode) replace(place int) {
	n.w.mu.Lock()
	gone := n.gone
	n.w.mu.Unlock()
	if !gone {
		n.w.newNode(place)
		n.close()
	}
}

// close closes n. P11: in time, and no lease is left behind.
func (n *randomNode) close() {
	w, began := n.w, n.w.now()
	n.leave(false)
	err := n.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	if took := w.now() - began; err != nil || took > 2*w.o.RedisTimeout+suspicious {
		w.report("", fmt.Sprintf("P11: closing %v took %v: %v", n, took, err))
	}
	for _, l := range w.ledgers {
		if _, own := n.granted[l.lease()]; own && !n.troubledSince(began-w.o.RedisTimeout) {
			l.broken("P11", "%v is closed and still holds the lease", n)
		}
	}
}

// note notes what concerns all keys.
func (n *randomNode) note(format string, args ...any) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.w.note("", "%v: "+format, append([]any{n}, args...)...)
}
