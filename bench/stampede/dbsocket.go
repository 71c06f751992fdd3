package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// dbSocket offers the database to node processes, on loopback: one connection a query, which carries the node's number and
// the key there and the value back. A query whose node is killed ends with its connection.
type dbSocket struct {
	db       *database
	listener net.Listener
	arrivals chan int // the numbers of the nodes that ask, for whoever looks; the rest are dropped
	serving  sync.WaitGroup
}

func listenDB(db *database) (*dbSocket, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &dbSocket{db: db, listener: listener, arrivals: make(chan int, 1)}
	s.serving.Go(s.accept)
	return s, nil
}

func (s *dbSocket) address() string { return s.listener.Addr().String() }

// close waits for the queries that run; end the nodes first.
func (s *dbSocket) close() {
	_ = s.listener.Close()
	s.serving.Wait()
}

func (s *dbSocket) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.serving.Go(func() { s.serve(conn) })
	}
}

func (s *dbSocket) serve(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	var number int
	var key string
	if _, err := fmt.Fscanf(in, "%d %s\n", &number, &key); err != nil {
		return
	}
	select {
	case s.arrivals <- number:
	default:
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.serving.Go(func() { // ends when either side closes
		_, _ = io.Copy(io.Discard, in)
		cancel()
	})
	if value, err := s.db.query(ctx, key); err == nil {
		_, _ = fmt.Fprintln(conn, value)
	}
}

// remoteDB is the node's side of it.
type remoteDB struct {
	address string
	number  int
}

func (r *remoteDB) query(ctx context.Context, key string) (string, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", r.address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := fmt.Fprintln(conn, r.number, key); err != nil {
		return "", err
	}
	value, err := bufio.NewReader(conn).ReadString('\n')
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	return strings.TrimSuffix(value, "\n"), err
}
