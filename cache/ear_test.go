package cache_test

import (
	"bytes"
	"context"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// ear is the connection by which one node hears of what the others do. Its other connections
// are left alone: faults on the whole wire would also show the node that Redis is away.
type ear struct {
	mu      sync.Mutex    // guards what follows
	silent  chan struct{} // closed when it ends; nil: it hears
	refused bool
	wires   []*earWire
}

// earWire is a connection that turns out to be the reader's by what is written on it.
type earWire struct {
	net.Conn
	ear    *ear
	parted chan struct{}
	once   sync.Once
	reads  bool // guarded by ear.mu
}

// listening puts the ear into a client's options.
func (e *ear) listening(o *redis.Options) {
	dial := o.Dialer
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &earWire{Conn: conn, ear: e, parted: make(chan struct{})}, nil
	}
}

// silence makes it deaf without a sign: what is sent does not arrive.
func (e *ear) silence() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.silent == nil {
		e.silent = make(chan struct{})
	}
}

// refuse makes it deaf with one: connections are reset, old and new.
func (e *ear) refuse() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused = true
	e.cutLocked()
}

// restore lets it hear again. What was sent to connections of before is lost.
func (e *ear) restore() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused = false
	e.cutLocked()
	if e.silent != nil {
		close(e.silent)
		e.silent = nil
	}
}

func (e *ear) cutLocked() {
	for _, w := range e.wires {
		w.part()
	}
	e.wires = nil
}

// holds is what a wire has to wait for, or an error.
func (e *ear) holds(w *earWire, sent []byte) (<-chan struct{}, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !w.reads && (bytes.Contains(sent, []byte("xread")) || bytes.Contains(sent, []byte("xrevrange"))) {
		w.reads = true
		e.wires = append(e.wires, w)
	}
	switch {
	case w.reads && e.refused:
		return nil, syscall.ECONNRESET
	case w.reads:
		return e.silent, nil
	}
	return nil, nil
}

func (w *earWire) Write(p []byte) (int, error) {
	if err := w.wait(p); err != nil {
		return 0, err
	}
	return w.Conn.Write(p)
}

func (w *earWire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if err == nil {
		err = w.wait(nil)
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (w *earWire) wait(sent []byte) error {
	silent, err := w.ear.holds(w, sent)
	if err != nil || silent == nil {
		return err
	}
	select {
	case <-silent:
	case <-w.parted:
	}
	select {
	case <-w.parted: // also if both are the case
		return net.ErrClosed
	default:
		return nil
	}
}

func (w *earWire) part() {
	w.once.Do(func() { close(w.parted) })
	_ = w.Conn.Close()
}

func (w *earWire) Close() error {
	w.part()
	w.ear.mu.Lock()
	defer w.ear.mu.Unlock()
	w.ear.wires = slices.DeleteFunc(w.ear.wires, func(o *earWire) bool { return o == w })
	return nil
}

// inBubbleWithEars is inBubble with nodes that can be made deaf. One message has been sent, so that the
// stream is there, and all nodes hear.
func inBubbleWithEars(t *testing.T, nodes int, o cache.Options, body func(*testing.T, *fleet, ears)) {
	t.Helper()
	inBubble(t, 0, o, func(t *testing.T, f *fleet) {
		all := f.growEars(nodes)
		time.Sleep(time.Millisecond)
		must(t, f.nodes[0].Delete(t.Context(), "the first message"))
		time.Sleep(time.Second)
		body(t, f, all)
	})
}

// growEars adds nodes to a fleet in a bubble.
func (f *fleet) growEars(nodes int) (all ears) {
	for range nodes {
		e := &ear{}
		l := f.mini.Link()
		f.add(l.Client(f.t, roomy, e.listening), l, f.options)
		all = append(all, e)
	}
	return all
}

type ears []*ear

func (all ears) silence() {
	for _, e := range all {
		e.silence()
	}
}

func (all ears) refuse() {
	for _, e := range all {
		e.refuse()
	}
}

func (all ears) restore() {
	for _, e := range all {
		e.restore()
	}
}

// isMessage matches what a node tells the others.
var isMessage = redistest.Contains(":!messages")

// streamKey is where they are.
const streamKey = "levee1:!messages"

// hours are settings under which a copy is only given up for a reason.
func hours() cache.Options {
	o := settings()
	o.TTL, o.LocalTTL = 10*time.Minute, 10*time.Minute
	return o
}

// losses are ways in which the messages of an invalidation get lost on the way to all nodes. After
// bound from the loss nobody may be served what was invalidated.
var losses = []struct {
	name  string
	bound time.Duration
	lose  func(t *testing.T, f *fleet, all ears, invalidate func())
}{
	{"in a silent connection", time.Second, func(_ *testing.T, _ *fleet, all ears, invalidate func()) {
		all.silence()
		invalidate()
	}},
	{"in a cut connection", time.Second, func(_ *testing.T, _ *fleet, all ears, invalidate func()) {
		all.refuse()
		invalidate()
	}},
	{"with the stream", time.Second, func(t *testing.T, f *fleet, all ears, invalidate func()) {
		all.silence()
		invalidate()
		must(t, f.probe.Del(t.Context(), streamKey).Err())
		all.restore()
	}},
	{"by trimming", time.Second, func(t *testing.T, f *fleet, all ears, invalidate func()) {
		all.silence()
		invalidate()
		must(t, f.nodes[0].Delete(t.Context(), "another"))
		must(t, f.probe.XTrimMaxLen(t.Context(), streamKey, 1).Err())
		all.restore()
	}},
}

// whateverGetsLost runs body for each of losses, in a bubble each.
func whateverGetsLost(t *testing.T, nodes int, o cache.Options, body func(t *testing.T, f *fleet, bound time.Duration, lose func(func()))) {
	t.Helper()
	for _, l := range losses {
		t.Run(l.name, func(t *testing.T) {
			inBubbleWithEars(t, nodes, o, func(t *testing.T, f *fleet, all ears) {
				body(t, f, l.bound, func(invalidate func()) { l.lose(t, f, all, invalidate) })
			})
		})
	}
}
