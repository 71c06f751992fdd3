package rebuild

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
)

// server speaks to Redis in the protocol's own words: one method a command or script.
type server struct {
	link *link.Link
}

// Key is one key in all the forms it takes.
type Key struct {
	Text    string // what identifies it, everywhere
	Hash    uint64 // of Text
	Redis   string // the entry's key
	Channel string // of the wake-ups
	User    any    // the caller's key, for the loader
}

// Mode is how far an acquire may go.
type Mode string

const (
	Look Mode = "look" // report, never lease
	Try  Mode = "try"  // lease if nobody holds it
	Wait Mode = "wait" // report, and ask to be woken if somebody holds it
)

// Status is what a script answered.
type Status string

const (
	statusAbsent     Status = "absent"
	statusUnreadable Status = "unreadable"
	statusLate       Status = "late"
	statusFresh      Status = "fresh"
	statusIdle       Status = "idle"
	statusHeld       Status = "held"
	statusBackoff    Status = "backoff"
	statusPass       Status = "pass"
	statusLeased     Status = "leased"

	statusCommitted Status = "committed"
	statusRefused   Status = "refused"
	statusOlder     Status = "older"
	statusFailed    Status = "failed"
	statusSeized    Status = "seized"
)

// reply is an answer of a script: status, server time, whether a wake-up was published, and
// then the entry or what else the script has to say.
type reply struct {
	Status Status
	Now    Micros       // server time
	Sent   link.Instant // on the node's clock
	Entry  Entry
	values []any
}

// errForeign is returned for a key that holds another Redis type: it is left alone.
var errForeign = errors.New("the key holds another Redis type")

// run calls one script within b and learns the time from its answer.
func (s server) run(ctx context.Context, b *link.Budget, class link.Class, k Key, script *redis.Script, args ...any) (reply, error) {
	call := s.call(k, script, args...)
	r, err := link.Call(ctx, s.link, b, class, func(ctx context.Context) (reply, error) {
		sent := s.link.Clock.Now()
		values, err := call.Run(ctx, s.link.Client)
		return s.answer(ctx, k, sent, values, err)
	})
	return r, named(err)
}

// answer reads what a script answered to a request sent at sent, and learns the time from it.
func (s server) answer(ctx context.Context, k Key, sent link.Instant, values []any, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	r, err := readReply(values, k.Hash)
	r.Sent = sent
	s.link.Clock.Observe(s.link.Master(ctx, k.Redis), sent, s.link.Clock.Now(), int64(r.Now))
	return r, err
}

func (s server) call(k Key, script *redis.Script, args ...any) link.ScriptCall {
	args = append([]any{hashText(k.Hash), k.Channel}, args...)
	return link.ScriptCall{Script: script, Key: k.Redis, Args: args}
}

// readReply reads the part that all answers share, and the entry where there is one.
func readReply(values []any, hash uint64) (r reply, err error) {
	if len(values) < 2 {
		return r, fmt.Errorf("a script answered %d values", len(values))
	}
	status, _ := values[0].(string)
	now, _ := values[1].(int64)
	r = reply{Status: Status(status), Now: Micros(now), values: values}
	if len(values) < 4 {
		return r, nil
	}
	head, ok := values[3].(string)
	if !ok {
		return r, nil
	}
	h, err := parseHeader(head, hash)
	r.Entry.Header = h
	if len(values) > 4 {
		rest, _ := values[4].(string)
		r.Entry = h.with(rest)
	}
	return r, err
}

// int reads the answer's value at i.
func (r reply) int(i int) int64 {
	if i >= len(r.values) {
		return 0
	}
	n, _ := r.values[i].(int64)
	return n
}

// named makes known what is not Redis being away but a key that must be left alone.
func named(err error) error {
	if err != nil && strings.Contains(err.Error(), "WRONGTYPE") {
		return fmt.Errorf("%w: %w", errForeign, err)
	}
	return err
}

// read is what one plain GET or GETRANGE brought.
type read struct {
	Entry Entry
	Found bool
	Err   error        // why what was found is not an entry
	Now   Micros       // server time when it was read
	Sent  link.Instant // on the node's clock
}

// get reads the whole entry, or with header only its fixed part. known is false as long as
// the clock of the key's master is not: then acquire in mode look is the way to read.
func (s server) get(ctx context.Context, b *link.Budget, k Key, header bool) (r read, known bool, err error) {
	type answer struct {
		read
		known bool
	}
	clock := s.link.Clock
	a, err := link.Call(ctx, s.link, b, link.Spared, func(ctx context.Context) (answer, error) {
		sent := clock.Now()
		master := s.link.Master(ctx, k.Redis)
		if _, ok := clock.ServerMicros(master, sent); !ok {
			return answer{}, nil
		}
		text, err := s.fetch(ctx, k.Redis, header)
		none := errors.Is(err, redis.Nil) || header && text == "" // GETRANGE cannot tell
		if err != nil && !none {
			return answer{}, err
		}
		now, _ := clock.ServerMicros(master, clock.Now())
		a := answer{read{Found: !none, Now: Micros(now), Sent: sent}, true}
		switch {
		case !a.Found:
		case header:
			a.Entry.Header, a.Err = parseHeader(text, k.Hash)
		default:
			a.Entry, a.Err = parseEntry(text, k.Hash)
		}
		return a, nil
	})
	return a.read, a.known, named(err)
}

func (s server) fetch(ctx context.Context, key string, header bool) (string, error) {
	if header {
		return s.link.Client.GetRange(ctx, key, 0, int64(HeaderSize)-1).Result()
	}
	return s.link.Client.Get(ctx, key).Result()
}

// millis is d in the wire's unit, rounded up: a lifetime is never cut to nothing.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
