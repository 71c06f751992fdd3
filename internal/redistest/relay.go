package redistest

import (
	"bufio"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// relay is one connection through a [Proxy].
type relay struct {
	proxy  *Proxy
	client net.Conn
	dead   chan struct{} // closed by cut and abort
	die    sync.Once
	holed  atomic.Bool // bytes of it were swallowed

	deprived atomic.Bool // its replies are lost

	mu      sync.Mutex   // guards everything below
	server  *net.TCPConn // nil until dialled
	holding bool         // a request is held back: cut spares the server's side
	waiting *Held        // the next bytes from the server answer this one
}

// run carries the connection until both directions have ended.
func (r *relay) run() {
	defer r.proxy.forget(r)
	defer r.abort()
	if !r.dial() {
		r.swallow()
		return
	}
	var wg sync.WaitGroup
	wg.Go(r.pumpUp)
	r.pumpDown()
	r.cut()
	wg.Wait()
}

// dial connects to the server. It reports false when there is nothing to relay:
// in a black hole, after a cut, and without a server.
func (r *relay) dial() bool {
	if r.proxy.swallow.Load() {
		return false
	}
	conn, err := net.DialTimeout("tcp", r.proxy.target, 5*time.Second)
	if err != nil {
		r.cut()
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = conn.(*net.TCPConn)
	if r.isDead() {
		_ = conn.Close()
	}
	return true
}

func (r *relay) swallow() {
	r.lost()
	_, _ = io.Copy(io.Discard, r.client)
}

// lost notes a hole in the stream. The black hole may have ended since it was
// looked at, and must not have missed this connection.
func (r *relay) lost() {
	r.holed.Store(true)
	if !r.proxy.swallow.Load() {
		r.cut()
	}
}

func (r *relay) isDead() bool {
	select {
	case <-r.dead:
		return true
	default:
		return false
	}
}

// cut breaks the connection for the client, and for the server unless that is
// still to get a request that is held back.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dieLocked(!r.holding)
}

// abort breaks both sides, whatever is held back.
func (r *relay) abort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dieLocked(true)
}

func (r *relay) dieLocked(both bool) {
	r.die.Do(func() { close(r.dead) })
	_ = r.client.Close()
	if both && r.server != nil {
		_ = r.server.Close()
	}
}

// pumpUp passes on requests one by one. At the end the server's side is closed
// for writing only: what was sent is still executed.
func (r *relay) pumpUp() {
	defer func() { _ = r.server.CloseWrite() }()
	in := bufio.NewReaderSize(r.client, 64<<10)
	came := time.Now()
	for {
		rest := in.Buffered() > 0
		req, err := readRequest(in)
		if err != nil {
			return
		}
		if !rest { // what was read in one piece came at one time
			came = time.Now()
		}
		r.proxy.commands.Add(1)
		if !r.forward(req, came) {
			return
		}
	}
}

// forward passes on one request, and reports whether the connection goes on.
func (r *relay) forward(req []byte, came time.Time) bool {
	p := r.proxy
	if h := p.catch(req); h != nil {
		return r.treat(h, req)
	}
	if p.swallow.Load() {
		r.lost()
		return true
	}
	return r.delay(came, time.Duration(p.up.Load())) && r.send(req)
}

func (r *relay) send(req []byte) bool {
	n, err := r.server.Write(req)
	r.proxy.bytesUp.Add(int64(n))
	if err != nil {
		r.answered(err)
	}
	return err == nil
}

// treat does with a caught request what its Held says, and reports whether the
// connection goes on.
func (r *relay) treat(h *Held, req []byte) bool {
	r.hold(true)
	close(h.caught)
	if h.lose {
		r.deprive(h, req)
		return false
	}
	defer r.hold(false)
	select {
	case <-h.released:
		r.expect(h)
		return r.send(req)
	case <-r.proxy.quit:
		return false
	}
}

// deprive sends the request and nothing after it. Nothing is delivered from now
// on, and the client is cut off when the server has read everything and closed,
// so that the request is executed before its client can try again. The server's
// side stays on hold, so that no other cut comes before.
func (r *relay) deprive(h *Held, req []byte) {
	r.deprived.Store(true)
	r.expect(h)
	r.send(req)
}

func (r *relay) hold(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holding = on
}

func (r *relay) expect(h *Held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = h
}

// pumpDown passes on what the server sends. It reads on when the client is gone,
// so that the server executes what it was sent.
func (r *relay) pumpDown() {
	buf := make([]byte, 64<<10)
	for {
		n, err := r.server.Read(buf)
		r.answered(err)
		if err != nil {
			return
		}
		r.deliver(buf[:n])
	}
}

func (r *relay) deliver(b []byte) {
	if r.deprived.Load() {
		return
	}
	if r.proxy.swallow.Load() {
		r.lost()
		return
	}
	if r.delay(time.Now(), time.Duration(r.proxy.down.Load())) {
		n, _ := r.client.Write(b)
		r.proxy.bytesDown.Add(int64(n))
	}
}

// answered tells the Held that waits for it. One whose reply is lost waits for
// the end of the connection: earlier replies of a pipeline may come first. For
// the other the end is a failure.
func (r *relay) answered(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.waiting
	if h == nil || h.lose && err == nil {
		return
	}
	r.waiting = nil
	if !h.lose || err != io.EOF {
		h.err = err
	}
	close(h.answered)
}

// delay waits until d after came, and reports whether the client is still there.
func (r *relay) delay(came time.Time, d time.Duration) bool {
	if d <= 0 {
		return !r.isDead()
	}
	timer := time.NewTimer(time.Until(came.Add(d)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.dead:
		return false
	}
}
