package redistest

import (
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// stream is one direction of a connection in memory. Writing never blocks, as
// with a socket whose buffer is large: over a net.Pipe a pipelining client and
// a replying server can wait for each other for ever. Reading blocks in a way
// that a synctest bubble recognises.
type stream struct {
	mu       sync.Mutex // guards everything below
	changed  *sync.Cond
	buf      []byte
	frozen   bool // what was written does not arrive
	ended    bool // the writer is done: EOF after buf
	closed   bool // the reader is done
	deadline time.Time
	alarm    *time.Timer // wakes readers at deadline
}

func newStream(frozen bool) *stream {
	s := &stream{frozen: frozen}
	s.changed = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, net.ErrClosed
		case !s.deadline.IsZero() && !time.Now().Before(s.deadline):
			return 0, os.ErrDeadlineExceeded
		case s.frozen || len(p) == 0:
		case len(s.buf) > 0:
			n := copy(p, s.buf)
			s.buf = s.buf[n:]
			return n, nil
		case s.ended:
			return 0, io.EOF
		}
		if len(p) == 0 {
			return 0, nil
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.closed {
		return 0, io.ErrClosedPipe
	}
	s.buf = append(s.buf, p...)
	s.changed.Broadcast()
	return len(p), nil
}

// change runs f under the lock and lets readers look again.
func (s *stream) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.changed.Broadcast()
}

func (s *stream) freeze(on bool) { s.change(func() { s.frozen = on }) }
func (s *stream) end()           { s.change(func() { s.ended = true }) }

// cut ends the stream and loses what did not arrive yet.
func (s *stream) cut() {
	s.change(func() { s.ended, s.frozen, s.buf = true, false, nil })
}

func (s *stream) close() {
	s.change(func() {
		s.closed = true
		s.disarmLocked()
	})
}

func (s *stream) setDeadline(t time.Time) {
	s.change(func() {
		s.disarmLocked()
		s.deadline = t
		if !t.IsZero() && !s.closed {
			s.alarm = time.AfterFunc(time.Until(t), func() { s.change(func() {}) })
		}
	})
}

func (s *stream) disarmLocked() {
	if s.alarm != nil {
		s.alarm.Stop()
		s.alarm = nil
	}
}
