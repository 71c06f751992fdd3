package link

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Stream carries messages between nodes through a capped Redis stream. Unlike pub/sub it
// lets a reader that was cut off go on where it stopped, and notice what it missed: each
// message names its predecessor. All methods are safe for concurrent use.
//
// Its Trust covers what followers asked Redis for, or a database that is changed before a message
// is sent, while they followed.
type Stream struct {
	Trust
	link    *Link
	key     string
	users   int            // guarded by streams.mu
	running sync.WaitGroup // of the reader

	received, gaps, sent atomic.Uint64

	mu     sync.Mutex              // guards what follows; not held while Receive runs
	topics map[string][]*following // a slice in it is never changed
	stop   context.CancelFunc      // of the reader; nil while there is no follower
	closed bool
}

// Follower is told of the messages of one topic.
type Follower struct {
	Topic  string
	Sender string // whose messages are skipped
	// Receive is called for each message in the order of the stream, by one goroutine. It must
	// not block, nor stop its follower.
	Receive func(Message)
	Logger  *slog.Logger // hears when messages cannot be received; nil: silent
}

// following is a Follower at work.
type following struct {
	Follower
	mu    sync.Mutex // held while Receive runs, so that stopping can wait for it
	ended bool
}

// StreamCounts are totals since the stream was opened.
type StreamCounts struct {
	Received uint64 // messages read, of all topics
	Gaps     uint64 // times that messages were missed, or may have been
	Sent     uint64 // messages given to Send or SendCall, whatever became of them
}

// streams are the open ones of a Link, by key.
type streams struct {
	mu   sync.Mutex // guards open and the counts of users
	open map[string]*Stream
}

// streamPatience is how long Close waits for a reader that is stuck in a dial.
const streamPatience = 250 * time.Millisecond

// OpenStream returns the stream at a Redis key and counts its caller as a user until Close.
// Nothing is read until somebody follows.
func (l *Link) OpenStream(key string) *Stream {
	l.streams.mu.Lock()
	defer l.streams.mu.Unlock()
	s := l.streams.open[key]
	if s == nil {
		s = &Stream{link: l, key: key, topics: map[string][]*following{}}
		if l.streams.open == nil {
			l.streams.open = map[string]*Stream{}
		}
		l.streams.open[key] = s
	}
	s.users++
	return s
}

// Close gives the stream up. When the last user does, reading ends before Close returns, but
// for what is stuck in the client's dialer: that ends with the dialer's timeout.
func (s *Stream) Close() {
	if !s.leave() {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.endLocked()
	s.mu.Unlock()
	waitFor(&s.running, streamPatience)
}

func (s *Stream) leave() (last bool) {
	all := &s.link.streams
	all.mu.Lock()
	defer all.mu.Unlock()
	s.users--
	if s.users == 0 {
		delete(all.open, s.key)
	}
	return s.users == 0
}

// CanHear is false where the client shows no options: it can send, and never hears.
func (s *Stream) CanHear() bool { return s.link.hasOwn() }

// Counts returns a snapshot.
func (s *Stream) Counts() StreamCounts {
	return StreamCounts{Received: s.received.Load(), Gaps: s.gaps.Load(), Sent: s.sent.Load()}
}

// Missed is for a message that could not be read, or not be understood: what was asked for until now is not
// trusted any more.
func (s *Stream) Missed() {
	s.raise(s.link.Clock.Now())
	s.gaps.Add(1)
}

// Follow has f told of what is sent from now on. After stop has returned, Receive is not called any
// more; stop may be called twice. What was asked for before Follow has returned is not covered by
// the stream's Trust.
func (s *Stream) Follow(f Follower) (stop func()) {
	w := &following{Follower: f}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return func() {}
	}
	s.topics[f.Topic] = append(slices.Clip(s.topics[f.Topic]), w)
	s.startLocked()
	return func() { s.unfollow(w) }
}

// startLocked begins the reading with the first follower.
func (s *Stream) startLocked() {
	if s.stop != nil || !s.CanHear() {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.running.Go(func() { newReader(s).run(ctx) })
}

func (s *Stream) endLocked() {
	if s.stop != nil {
		s.stop()
		s.stop = nil
		s.forget()
	}
}

func (s *Stream) unfollow(w *following) {
	s.mu.Lock()
	left := slices.DeleteFunc(slices.Clone(s.topics[w.Topic]), func(o *following) bool { return o == w })
	s.topics[w.Topic] = left
	if len(left) == 0 {
		delete(s.topics, w.Topic)
	}
	if len(s.topics) == 0 {
		s.endLocked()
	}
	s.mu.Unlock()

	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

// deliver tells the followers of a message's topic.
func (s *Stream) deliver(e entry) {
	s.mu.Lock()
	all := s.topics[e.Topic]
	s.mu.Unlock()
	for _, w := range all {
		if w.Sender != e.sender {
			w.receive(e.Message)
		}
	}
}

func (w *following) receive(m Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.Receive(m)
	}
}

// log writes to each logger of the followers once.
func (s *Stream) log(level slog.Level, text string, err error) {
	for l := range s.loggers() {
		if err != nil {
			l = l.With("error", err)
		}
		l.Log(context.Background(), level, text, "stream", s.key)
	}
}

func (s *Stream) loggers() map[*slog.Logger]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := map[*slog.Logger]struct{}{}
	for _, topic := range s.topics {
		for _, w := range topic {
			if w.Logger != nil {
				all[w.Logger] = struct{}{}
			}
		}
	}
	return all
}
