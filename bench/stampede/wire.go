package main

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// meter counts what the nodes send to Redis. It looks at the bytes on the wire, since nothing above them sees everything:
// pipelines, retries, subscriptions and the greeting of a new connection are all in it, on every kind of server alike.
// A script is one command, whatever it does inside.
type meter struct{ commands atomic.Int64 }

// client makes a client whose connections are counted, with go-redis's own settings otherwise.
func (m *meter) client(address string) (*redis.Client, error) {
	o, err := clientOptions(address)
	if err != nil {
		return nil, err
	}
	dial := redis.NewDialer(o)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return m.watch(conn), nil
	}
	return redis.NewClient(o), nil
}

// watch keeps a socket recognisable as one, so that go-redis checks idle connections as it always does.
func (m *meter) watch(conn net.Conn) net.Conn {
	counted := &countedConn{Conn: conn, meter: m}
	if socket, ok := conn.(syscall.Conn); ok {
		return struct {
			*countedConn
			syscall.Conn
		}{counted, socket}
	}
	return counted
}

// countedConn counts the commands written to one connection; go-redis never writes twice at once.
type countedConn struct {
	net.Conn
	meter *meter
	frame frame
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.meter.commands.Add(c.frame.feed(p[:n]))
	return n, err
}

// frame follows the request protocol across writes: a command is "*<parts>\r\n", then "$<length>\r\n<bytes>\r\n" each.
type frame struct {
	skip   int  // bytes of a part still to come
	kind   byte // first byte of the line being read, 0 before it
	number int
}

// feed counts the commands that begin in p.
func (f *frame) feed(p []byte) (commands int64) {
	for len(p) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(p))
			f.skip, p = f.skip-n, p[n:]
			continue
		}
		if f.line(p[0]) {
			commands++
		}
		p = p[1:]
	}
	return commands
}

// line takes one byte of a line and reports whether it ended the head of a command.
func (f *frame) line(b byte) (command bool) {
	switch {
	case f.kind == 0:
		f.kind = b
	case b >= '0' && b <= '9':
		f.number = f.number*10 + int(b-'0')
	case b == '\n':
		command = f.kind == '*'
		if f.kind == '$' {
			f.skip = f.number + len("\r\n")
		}
		f.kind, f.number = 0, 0
	}
	return command
}
