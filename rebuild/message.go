package rebuild

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/lock"
)

// News is how nodes tell each other what was invalidated. The zero value: they do not.
type News struct {
	Stream string // its key
	Topic  string // the entries that this node's messages are about
	Length int64  // about how many messages it keeps; 0: there is none
	Life   time.Duration
}

// The kinds of messages.
const (
	keyMessage  byte = 'k' // an entry was deleted, expired or set: Text is the key's
	hardMessage byte = 'h' // what carries the tag Text, or everything, has ended: Number is the generation
	softMessage byte = 's' // its freshness has
)

// errUntold is returned if what was done to an entry could not be told to other nodes.
var errUntold = errors.New("other nodes could not be told")

// listen has this node hear what others do. Its own messages do not come back to it.
func (n *Node) listen(news News) {
	if n.server.link == nil || news.Length == 0 {
		return
	}
	n.stream = n.server.link.OpenStream(news.Stream)
	n.sends = link.Publication{Sender: lock.NewToken(), Length: news.Length, Life: news.Life}
	n.closeStream = sync.OnceFunc(n.stream.Close)
	n.trust = &n.stream.Trust
	n.deafen = n.stream.Follow(link.Follower{
		Topic: news.Topic, Sender: n.sends.Sender, Receive: n.heard, Logger: n.policy.Logger})
}

// hearNothing ends what listen and Track have begun.
func (n *Node) hearNothing() {
	if n.stream != nil {
		n.deafen()
		n.closeStream()
	}
	if n.tracking != nil {
		n.tracking.Close()
	}
}

// Hearing tells how often messages may have been missed, and whether none can be received now.
func (n *Node) Hearing() (gaps int64, deaf bool) {
	if n.stream != nil {
		gaps = int64(n.stream.Counts().Gaps)
	}
	return gaps, !n.trust.Hears(n.clock.Now())
}

// heard does for a message what the node that sent it has done for itself.
func (n *Node) heard(m link.Message) {
	n.Counts.Heard.Add(1)
	switch m.Kind {
	case keyMessage:
		n.forget(Key{Text: m.Text, Hash: n.values.Hash(m.Text)})
	case hardMessage, softMessage:
		if g := n.met(m.Text); g != nil {
			g.poison(m.Kind == softMessage, n.clock.Now())
		} else {
			n.tags.unmet.update(m.Text, func(unmetChange) unmetChange { return unmetChange{n.clock.Now(), true} })
		}
		n.ended(m.Text)
	default: // a newer version's
		n.stream.Missed()
	}
}

// tell tells other nodes that keys were invalidated, once Redis has confirmed that: a message that
// overtakes the script would let them read, and keep, what it is about.
func (n *Node) tell(ctx context.Context, b *link.Budget, ks ...Key) error {
	if n.stream == nil || len(ks) == 0 {
		return nil
	}
	return untold(n.stream.Send(ctx, b, n.sends, n.messages(ks)...))
}

func (n *Node) messages(ks []Key) []link.Message {
	all := make([]link.Message, len(ks))
	for i, k := range ks {
		all[i] = link.Message{Topic: n.policy.News.Topic, Kind: keyMessage, Text: k.Text}
	}
	return all
}

func untold(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errUntold, err)
}

// tellAndRun sends the message in one pipeline with a script that does not depend on it.
func (n *Node) tellAndRun(ctx context.Context, b *link.Budget, k Key, script *redis.Script, args ...any) (r reply, told, err error) {
	if n.stream == nil {
		r, err = n.server.run(ctx, b, link.Urgent, k, script, args...)
		return r, nil, err
	}
	calls := []link.ScriptCall{n.stream.SendCall(n.sends, n.messages([]Key{k})...), n.server.call(k, script, args...)}
	type answers struct {
		reply
		told, err error
	}
	both, err := link.Call(ctx, n.server.link, b, link.Urgent, func(ctx context.Context) (a answers, err error) {
		sent := n.clock.Now()
		replies := link.RunAll(ctx, n.server.link.Client, calls)
		a.told = replies[0].Err
		a.reply, a.err = n.server.answer(ctx, k, sent, replies[1].Values, replies[1].Err)
		return a, nil
	})
	if err != nil {
		return r, untold(err), err
	}
	return both.reply, untold(both.told), named(both.err)
}
