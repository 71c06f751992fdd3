package link

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

const streamKey = "levee:stream"

// kept is how the tests send unless they say otherwise.
var kept = Publication{Sender: "tester", Length: 10_000, Life: time.Hour}

// ear is a follower that keeps the texts it is told.
type ear struct {
	stream *Stream
	stop   func()

	mu  sync.Mutex // guards got
	got []string
	log journal
}

func (e *ear) receive(m Message) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, m.Text)
}

// texts are those told so far.
func (e *ear) texts() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return strings.Join(e.got, " ")
}

// count is how many.
func (e *ear) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.got)
}

// trusts tells whether what was asked for at since is trusted now.
func (e *ear) trusts(since Instant) bool { return e.stream.Trusts(since, e.now()) }
func (e *ear) hears() bool               { return e.stream.Hears(e.now()) }
func (e *ear) now() Instant              { return e.stream.link.Clock.Now() }

// asked is an instant that has passed: when something was asked for, in a bubble.
func (e *ear) asked() Instant {
	i := e.now()
	time.Sleep(time.Millisecond)
	return i
}

// journal is a log.
type journal struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// lines counts those that contain what.
func (j *journal) lines(what string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.text.String()) {
		if strings.Contains(line, what) {
			n++
		}
	}
	return n
}

// stream opens l's stream, closed when the test ends.
func stream(t *testing.T, l *Link) *Stream {
	t.Helper()
	s := l.OpenStream(streamKey)
	t.Cleanup(s.Close)
	return s
}

// follow begins to follow topic as sender.
func follow(t *testing.T, s *Stream, topic, sender string) *ear {
	t.Helper()
	e := &ear{stream: s}
	e.stop = s.Follow(Follower{
		Topic: topic, Sender: sender, Receive: e.receive,
		Logger: slog.New(slog.NewTextHandler(&e.log, nil)),
	})
	t.Cleanup(e.stop)
	return e
}

// ears follows with a node of its own on client.
func ears(t *testing.T, client redis.UniversalClient) *ear {
	t.Helper()
	return follow(t, stream(t, open(t, client)), "users", "ear")
}

// sends sends texts one by one.
func sends(t *testing.T, s *Stream, p Publication, texts ...string) {
	t.Helper()
	for _, text := range texts {
		must(t, s.Send(t.Context(), &Budget{Left: 5 * time.Second}, p, Message{Topic: "users", Kind: 'd', Text: text}))
	}
}

// sendAll sends texts by one call.
func sendAll(t *testing.T, s *Stream, p Publication, texts ...string) {
	t.Helper()
	var all []Message
	for _, text := range texts {
		all = append(all, Message{Topic: "users", Kind: 'd', Text: text})
	}
	must(t, s.Send(t.Context(), &Budget{Left: 5 * time.Second}, p, all...))
}

// senders is a stream on which nobody follows.
func senders(t *testing.T, client redis.UniversalClient) *Stream {
	t.Helper()
	return stream(t, open(t, client))
}

// flowing is a stream that has a message, and an ear that hears: in a bubble.
func flowing(t *testing.T, b *redistest.BubbleServer, client redis.UniversalClient) (*Stream, *ear) {
	t.Helper()
	s := senders(t, b.Client(t))
	sends(t, s, kept, "first")
	e := ears(t, client)
	synctest.Wait()
	equal(t, "the ear hears", e.hears(), true)
	return s, e
}

// heard fails unless e has been told exactly these texts by now, in a bubble.
func heard(t *testing.T, e *ear, texts string) {
	t.Helper()
	synctest.Wait()
	equal(t, "texts", e.texts(), texts)
}

// add writes to the stream as no script of ours would; id "*" is the next one.
func add(t *testing.T, client redis.UniversalClient, id string, fields ...any) {
	t.Helper()
	must(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: streamKey, ID: id, Values: fields}).Err())
}

// numbers are n texts.
func numbers(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprint(i))
	}
	return texts
}

// until polls in real time.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, cond, what)
}

// readers are the names on the stacks of what a stream runs.
var readers = []string{"link.(*reader)", "link.(*Stream)", "link.handOver"}
