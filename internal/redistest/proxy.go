package redistest

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Proxy is a TCP relay on loopback in front of a server. It disturbs what
// passes through it: by request for a single one, by connection for the rest.
// Its methods are safe for concurrent use.
type Proxy struct {
	target string
	addr   string
	quit   chan struct{} // closed by Close
	wg     sync.WaitGroup

	mu     sync.Mutex   // guards everything below
	ln     net.Listener // nil while refusing
	relays map[*relay]struct{}
	holds  []*Held
	closed bool

	up, down  atomic.Int64 // delays
	swallow   atomic.Bool
	accepted  atomic.Int64
	commands  atomic.Int64
	bytesUp   atomic.Int64
	bytesDown atomic.Int64
}

// ProxyStats counts what passed a [Proxy] since it was started.
type ProxyStats struct {
	Accepted int   // connections
	Open     int   // connections now
	Commands int64 // requests read from clients, also those that were not passed on
	BytesUp  int64 // bytes sent to the server
	// BytesDown are the bytes sent to clients.
	BytesDown int64
}

// NewProxy starts a relay to a server's address that is closed when the test
// ends.
func NewProxy(t TB, target string) *Proxy {
	t.Helper()
	p, err := StartProxy(target)
	if err != nil {
		t.Fatalf("redistest: proxy: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// StartProxy starts a relay to a server's address. The caller must call Close.
func StartProxy(target string) (*Proxy, error) {
	p := &Proxy{target: target, addr: "127.0.0.1:0", quit: make(chan struct{}), relays: map[*relay]struct{}{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.listenLocked(); err != nil {
		return nil, err
	}
	p.addr = p.ln.Addr().String()
	return p, nil
}

// Addr is the host:port for clients.
func (p *Proxy) Addr() string { return p.addr }

// Client returns a client of s that goes through the proxy and is closed when
// the test ends.
func (p *Proxy) Client(t TB, s *Server, edit ...func(*redis.Options)) *redis.Client {
	o := s.Options()
	o.Addr = p.addr
	return newClient(t, o, edit)
}

func (p *Proxy) listenLocked() error {
	ln, err := net.Listen("tcp", p.addr)
	if err != nil {
		return err
	}
	p.ln = ln
	p.wg.Go(func() { p.accept(ln) })
	return nil
}

func (p *Proxy) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		p.accepted.Add(1)
		p.relay(conn)
	}
}

func (p *Proxy) relay(client net.Conn) {
	r := &relay{proxy: p, client: client, dead: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = client.Close()
		return
	}
	p.relays[r] = struct{}{}
	p.wg.Go(r.run)
}

func (p *Proxy) forget(r *relay) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.relays, r)
}

// Delay makes everything towards the server arrive up later, and everything
// towards clients down later. It suits clients that send, then wait; bytes that
// come during such a delay may take up to twice as long.
func (p *Proxy) Delay(up, down time.Duration) {
	p.up.Store(int64(up))
	p.down.Store(int64(down))
}

// Cut closes all connections. What [Proxy.Hold] keeps back can still be
// released to the server.
func (p *Proxy) Cut() { p.cut(func(*relay) bool { return true }) }

func (p *Proxy) cut(which func(*relay) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.relays {
		if which(r) {
			r.cut()
		}
	}
}

// BlackHole makes old and new connections stay open and swallow what is sent on
// them, in both directions. Turned off, it cuts those that have swallowed
// something: their streams have a hole.
func (p *Proxy) BlackHole(on bool) {
	p.swallow.Store(on)
	if !on {
		p.cut(func(r *relay) bool { return r.holed.Load() })
	}
}

// Refuse closes the listening socket and all connections while on: connecting
// fails at once. Turned off, it listens on the same port again.
func (p *Proxy) Refuse(on bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return net.ErrClosed
	case on && p.ln != nil:
		err := p.ln.Close()
		p.ln = nil
		for r := range p.relays {
			r.cut()
		}
		return err
	case !on && p.ln == nil:
		return p.listenLocked()
	}
	return nil
}

// Stats returns the counters.
func (p *Proxy) Stats() ProxyStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return ProxyStats{
		Accepted:  int(p.accepted.Load()),
		Open:      len(p.relays),
		Commands:  p.commands.Load(),
		BytesUp:   p.bytesUp.Load(),
		BytesDown: p.bytesDown.Load(),
	}
}

// Close closes everything and waits for the proxy's goroutines. What was held
// back is lost. Closing twice is harmless.
func (p *Proxy) Close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.quit)
		if p.ln != nil {
			_ = p.ln.Close()
		}
		for r := range p.relays {
			r.abort()
		}
	}
	p.mu.Unlock()
	p.wg.Wait()
}

var errProxyClosed = errors.New("redistest: proxy closed")
