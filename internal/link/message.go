package link

import (
	"context"
	_ "embed"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Message is something that all followers of a topic are told. What Kind, Text and Number
// mean is between them.
type Message struct {
	Topic  string
	Kind   byte
	Text   string
	Number int64
}

// Publication is what messages that are sent together have in common.
type Publication struct {
	Sender string        // the follower that is not told, since it knows; unique in the fleet
	Length int64         // about how many messages the stream keeps; the least of any sender counts
	Life   time.Duration // how long the stream is kept after the last message; the longest of any sender counts
}

//go:embed message.lua
var messageLua string

var messageScript = redis.NewScript(messageLua)

// position is a place in a stream: behind the message with this id and tag. The id alone
// would not do: a stream that is lost and begun anew within a millisecond gives it again.
type position struct{ id, tag string }

// start is the position before the first message of a stream.
var start = position{id: "0-0"}

func (p position) String() string { return p.id + "/" + p.tag }

// after is the position behind a message, whoever wrote it.
func after(x redis.XMessage) position {
	tag, _ := x.Values["u"].(string)
	return position{x.ID, tag}
}

// entry is a message as it stands in the stream.
type entry struct {
	Message
	sender, predecessor string
}

// parse reads an entry; ok is false for one that was not written by the script.
func parse(x redis.XMessage) (e entry, ok bool) {
	ok = true
	text := func(field string) string {
		s, is := x.Values[field].(string)
		ok = ok && is
		return s
	}
	kind, number, _ := text("k"), text("n"), text("u")
	e = entry{Message: Message{Topic: text("t"), Text: text("x")}, sender: text("s"), predecessor: text("p")}
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || len(kind) != 1 || err != nil {
		return entry{}, false
	}
	e.Kind, e.Number = kind[0], n
	return e, true
}

// Send appends messages to the stream, by one call through the user's client that goes past
// the breaker. With an error they may be in the stream all the same, now or later.
func (s *Stream) Send(ctx context.Context, b *Budget, p Publication, messages ...Message) error {
	call := s.SendCall(p, messages...)
	_, err := Call(ctx, s.link, b, Urgent, func(ctx context.Context) ([]any, error) {
		return call.Run(ctx, s.link.Client)
	})
	return err
}

// SendCall is Send as a call to be made together with others by [RunAll]. It answers the ids.
func (s *Stream) SendCall(p Publication, messages ...Message) ScriptCall {
	tag := strconv.FormatUint(rand.Uint64(), 36)
	args := []any{strconv.FormatInt(max(1, ceilMillis(p.Life)), 10), strconv.FormatInt(p.Length, 10), p.Sender, tag}
	for _, m := range messages {
		args = append(args, m.Topic, string([]byte{m.Kind}), m.Text, strconv.FormatInt(m.Number, 10))
	}
	s.sent.Add(uint64(len(messages)))
	return ScriptCall{Script: messageScript, Key: s.key, Args: args}
}

func ceilMillis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
