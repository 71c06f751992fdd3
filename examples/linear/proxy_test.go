package linear

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// proxy is one node's way to Redis. It tells the connection on which the node reads the stream of
// messages from the others, by what is sent on it.
type proxy struct {
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	wires   map[*wire]struct{}
	holes   map[which]bool
	refuses bool
}

// which connections a fault is about.
type which string

const (
	everything which = "everything"
	theStream  which = "the stream"
)

// wire is one connection through the proxy.
type wire struct {
	client, server net.Conn
	stream, holed  bool // guarded by proxy.mu; holed: something has been swallowed
}

func (w *wire) is(what which) bool { return what == everything || w.stream }

func (w *wire) close() {
	_ = w.client.Close()
	_ = w.server.Close()
}

func newProxy(t *testing.T, target string) *proxy {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{ln: ln, target: target, wires: map[*wire]struct{}{}, holes: map[which]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.refuse(true)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.add(&wire{client: client, server: server})
	}
}

func (p *proxy) add(w *wire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses {
		w.close()
		return
	}
	p.wires[w] = struct{}{}
	p.wg.Go(func() { p.pump(w, w.server, w.client) })
	p.wg.Go(func() { p.pump(w, w.client, w.server) })
}

// pump passes on what comes until one side is closed.
func (p *proxy) pump(w *wire, to, from net.Conn) {
	defer p.drop(w)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if p.swallows(w, buf[:n]) {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// Only the reader of the stream sends these; what others send of them is upper case, in a script.
var streamCommands = [][]byte{[]byte("\r\nxread\r\n"), []byte("\r\nxrevrange\r\n")}

func (p *proxy) swallows(w *wire, b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range streamCommands {
		w.stream = w.stream || bytes.Contains(b, c)
	}
	swallow := p.holes[everything] || w.stream && p.holes[theStream]
	w.holed = w.holed || swallow
	return swallow
}

func (p *proxy) drop(w *wire) {
	w.close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.wires, w)
}

// cut closes connections, and returns how many.
func (p *proxy) cut(what which) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cutLocked(func(w *wire) bool { return w.is(what) })
}

func (p *proxy) cutLocked(these func(*wire) bool) (n int) {
	for w := range p.wires {
		if these(w) {
			w.close()
			n++
		}
	}
	return n
}

// hole swallows what is sent, in both directions. At its end the connections that have lost something
// are cut.
func (p *proxy) hole(what which, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holes[what] = on
	if !on {
		p.cutLocked(func(w *wire) bool { return w.holed })
	}
}

// refuse cuts everything, and new connections as soon as they are made.
func (p *proxy) refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = on
	if on {
		p.cutLocked(func(*wire) bool { return true })
	}
}
