package redistest

import (
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// settle is how much of the bubble's time passes after its server has closed.
// When the test's own goroutine is gone the clock stands still, and a call that
// go-redis is about to try again could never notice that its client is closed.
const settle = 5 * time.Second

// BubbleServer is miniredis inside a testing/synctest bubble: no socket, and
// TIME, lifetimes, stream ids and blocking commands follow the bubble's clock.
// Its methods may be called from any goroutine of the bubble.
type BubbleServer struct {
	mu    sync.Mutex // guards everything below
	mini  *miniredis.Miniredis
	links []*Link
	main  *Link
}

// Bubble starts a server in the bubble that the test runs in. It is closed when
// the test ends, after the clients that were made from it, and calls that are
// still under way get five seconds of the bubble's clock to fail.
func Bubble(t TB) *BubbleServer {
	t.Helper()
	b := &BubbleServer{}
	mini, err := newMini()
	if err != nil {
		t.Fatalf("redistest: miniredis: %v", err)
	}
	b.mini = mini
	b.main = b.Link()
	t.Cleanup(func() {
		b.Close()
		<-time.After(settle)
	})
	return b
}

// newMini returns a miniredis without a listener. Only its first Dial makes it
// ready for connections, so one is dialled and dropped.
func newMini() (*miniredis.Miniredis, error) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	conn, err := m.Dial()
	if err != nil {
		return nil, err
	}
	return m, conn.Close()
}

// Mini gives direct access to miniredis; Restart replaces it.
func (b *BubbleServer) Mini() *miniredis.Miniredis {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mini
}

// Link returns a new wire to the server, such as each node has one.
func (b *BubbleServer) Link() *Link {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &Link{server: b}
	b.links = append(b.links, l)
	return l
}

// Client returns a client on a link that all callers of this method share. It
// is closed when the test ends.
func (b *BubbleServer) Client(t TB, edit ...func(*redis.Options)) *redis.Client {
	return b.main.Client(t, edit...)
}

func (b *BubbleServer) each(f func(*Link)) {
	b.mu.Lock()
	links := append([]*Link(nil), b.links...)
	b.mu.Unlock()
	for _, l := range links {
		f(l)
	}
}

// Freeze freezes every link, as if the server process were stopped.
func (b *BubbleServer) Freeze() { b.each((*Link).Freeze) }

// Thaw undoes Freeze, on every link.
func (b *BubbleServer) Thaw() { b.each((*Link).Thaw) }

// Cut breaks every connection.
func (b *BubbleServer) Cut() { b.each((*Link).Cut) }

// Restart is a crash and a new start: connections break, data and scripts are
// gone.
func (b *BubbleServer) Restart(t TB) {
	t.Helper()
	mini, err := newMini()
	if err != nil {
		t.Fatalf("redistest: miniredis: %v", err)
	}
	old := b.replace(mini)
	b.Cut()
	old.Close()
}

func (b *BubbleServer) replace(mini *miniredis.Miniredis) (old *miniredis.Miniredis) {
	b.mu.Lock()
	defer b.mu.Unlock()
	old, b.mini = b.mini, mini
	return old
}

// serve connects the other end of a wire, unless the server is closed. One that is about to be is no longer ours: to look
// at it would race.
func (b *BubbleServer) serve(end net.Conn) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	srv := b.mini.Server()
	if srv != nil {
		srv.ServeConn(end)
	}
	return srv != nil
}

// Close ends the server and its goroutines; the bubble can end then. The
// cleanup of the test calls it too.
func (b *BubbleServer) Close() {
	b.each(func(l *Link) { l.Refuse(true) })
	b.Mini().Close()
}
