package redistest

import (
	"net"
	"time"
)

// wire is one end of a connection in memory.
type wire struct {
	in, out *stream
}

// newWire returns the two ends of a new connection.
func newWire(frozen bool) (client, server *wire) {
	up, down := newStream(frozen), newStream(frozen)
	return &wire{in: down, out: up}, &wire{in: up, out: down}
}

func (w *wire) Read(p []byte) (int, error)  { return w.in.read(p) }
func (w *wire) Write(p []byte) (int, error) { return w.out.write(p) }

// Close lets the other end read what was written before, then EOF.
func (w *wire) Close() error {
	w.in.close()
	w.out.end()
	return nil
}

func (w *wire) freeze(on bool) {
	w.in.freeze(on)
	w.out.freeze(on)
}

func (w *wire) cut() {
	w.in.cut()
	w.out.cut()
}

// wireAddr is what go-redis sees: an address that needs no lookup.
var wireAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6379}

func (w *wire) LocalAddr() net.Addr  { return wireAddr }
func (w *wire) RemoteAddr() net.Addr { return wireAddr }

func (w *wire) SetDeadline(t time.Time) error     { return w.SetReadDeadline(t) }
func (w *wire) SetReadDeadline(t time.Time) error { w.in.setDeadline(t); return nil }

// SetWriteDeadline does nothing, since writing never waits.
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
