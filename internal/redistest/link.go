package redistest

import (
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// Link is one node's wire to a [BubbleServer], and the place for faults that
// hit everything on it: commands, subscriptions and blocking reads.
type Link struct {
	server  *BubbleServer
	mu      sync.Mutex // guards everything below
	ends    []*wire    // the client ends of connections that may be open
	frozen  bool
	refused bool
}

// manyConns keeps a bubble's pool from running empty: go-redis then waits on a timer out of a
// pool that all bubbles of the process share, and the runtime ends a test that touches
// another bubble's timer.
const manyConns = 2000

// Client returns a client that talks over this link only. It is closed when the
// test ends.
func (l *Link) Client(t TB, edit ...func(*redis.Options)) *redis.Client {
	o := &redis.Options{Addr: wireAddr.String(), Dialer: l.dial, PoolSize: manyConns}
	return newClient(t, o, edit)
}

func (l *Link) dial(context.Context, string, string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	refusal := &net.OpError{Op: "dial", Net: "tcp", Addr: wireAddr, Err: syscall.ECONNREFUSED}
	if l.refused { // a server that is being closed is not looked at
		return nil, refusal
	}
	client, server := newWire(l.frozen)
	if !l.server.serve(server) {
		return nil, refusal
	}
	l.ends = append(l.ends, client)
	return client, nil
}

// Freeze stops the bytes in both directions, also on connections made from now
// on. Nothing breaks, and nothing is lost: it arrives after Thaw.
func (l *Link) Freeze() { l.freeze(true) }

// Thaw delivers what was written meanwhile. A command whose client has given up
// is executed now.
func (l *Link) Thaw() { l.freeze(false) }

func (l *Link) freeze(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frozen = on
	for _, w := range l.ends {
		w.freeze(on)
	}
}

// Cut breaks all connections; what was under way is lost. New ones are welcome.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.ends {
		w.cut()
	}
	l.ends = nil
}

// Refuse turns away new connections while on, and breaks those there are.
func (l *Link) Refuse(on bool) {
	l.mu.Lock()
	l.refused = on
	l.mu.Unlock()
	if on {
		l.Cut()
	}
}
