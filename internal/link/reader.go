package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// reader reads one stream. It goes by a concrete position, never by "what is new": after a
// lost connection it goes on where it stopped, and the predecessors of the messages tell whether
// what it missed is still there.
type reader struct {
	stream *Stream
	clock  *Clock
	conn   *ownConn // nil while there is none
	at     position // behind the last message read; the zero value before the first look
	outage outage
}

// batch is the most messages of one read.
const batch = 1000

func newReader(s *Stream) *reader {
	return &reader{stream: s, clock: s.link.Clock, outage: outage{what: "messages", log: s.log}}
}

func (r *reader) run(ctx context.Context) {
	defer r.drop()
	for ctx.Err() == nil {
		if err := r.step(ctx); err != nil && ctx.Err() == nil {
			r.failed(ctx, err)
		}
	}
}

// step reads once. A new connection, and a stream that was silent for a while, begin by a look
// at the stream's end.
func (r *reader) step(ctx context.Context) error {
	if r.conn != nil && r.clock.Now() >= r.conn.opened.Add(ownConnLife) {
		r.drop()
	}
	if r.conn == nil {
		conn, err := r.stream.link.openOwn(ctx, r.stream.key)
		if err != nil {
			return err
		}
		r.conn = conn
		if r.at == start { // a stream that came and went meanwhile cannot be told from none
			r.at = position{}
		}
		return r.look(ctx, openPatience)
	}
	sent := r.clock.Now()
	messages, err := r.read(ctx)
	switch {
	case err != nil:
		return err
	case len(messages) > 0:
		r.take(ctx, messages, sent)
		return nil
	}
	r.slowDown(ctx, sent)
	return r.look(ctx, slack)
}

// read waits for messages behind the position.
func (r *reader) read(ctx context.Context) ([]redis.XMessage, error) {
	streams, err := ask(ctx, r.conn, blockTime+slack, func(ctx context.Context, c *redis.Conn) ([]redis.XStream, error) {
		return c.XRead(ctx, &redis.XReadArgs{Streams: []string{r.stream.key}, ID: r.at.id, Count: batch, Block: blockTime}).Result()
	})
	if errors.Is(err, redis.Nil) || err == nil && len(streams) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return streams[0].Messages, nil
}

// slowDown keeps a proxy that does not block from being asked without a pause.
func (r *reader) slowDown(ctx context.Context, sent Instant) {
	if early := blockTime - time.Duration(r.clock.Now()-sent); early > 0 {
		rest(ctx, early)
	}
}

// look compares the position with the stream's end. An end that is neither the position nor
// behind it is that of another stream: the one that was read was lost in a failover, deleted,
// evicted or has expired.
func (r *reader) look(ctx context.Context, patience time.Duration) error {
	sent := r.clock.Now()
	last, err := ask(ctx, r.conn, patience, func(ctx context.Context, c *redis.Conn) ([]redis.XMessage, error) {
		return c.XRevRangeN(ctx, r.stream.key, "+", "-", 1).Result()
	})
	if err != nil || ctx.Err() != nil {
		return err
	}
	end := start
	if len(last) > 0 {
		end = after(last[0])
	}
	if r.at.id == "" || end != r.at && !before(r.at.id, end.id) {
		r.begin(end)
	}
	if end == r.at {
		r.heard(sent)
	}
	return nil
}

// begin takes up the stream at its end. What it held before is not looked at, so what was asked
// for until now is not trusted any more.
func (r *reader) begin(end position) {
	r.stream.raise(r.clock.Now())
	if r.at.id != "" {
		r.stream.gaps.Add(1)
	}
	r.at = end
}

// take delivers what a read sent at this instant brought. Messages behind a gap are delivered
// too: they are true whatever else was missed.
func (r *reader) take(ctx context.Context, messages []redis.XMessage, sent Instant) {
	entries, gap := r.entries(messages)
	if gap {
		r.stream.Missed()
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return
		}
		r.stream.deliver(e)
	}
	r.stream.received.Add(uint64(len(messages)))
	if len(messages) < batch { // otherwise there may be more, as old as these
		r.heard(sent)
	}
}

// entries parses messages and moves the position behind them. A message that does not follow the
// position, or is nobody's, is a gap; so is the first of a stream, since nobody knows what the
// stream before it held.
func (r *reader) entries(messages []redis.XMessage) (all []entry, gap bool) {
	for _, m := range messages {
		e, ok := parse(m)
		if ok {
			all = append(all, e)
		}
		gap = gap || !ok || e.predecessor != r.at.String() || r.at == start
		r.at = after(m)
	}
	return all, gap
}

func (r *reader) heard(sent Instant) {
	r.stream.prove(sent)
	if r.stream.Hears(r.clock.Now()) {
		r.outage.over()
	}
}

// failed gives the connection up and waits before the next attempt.
func (r *reader) failed(ctx context.Context, err error) {
	r.drop()
	r.stream.link.lookAgain(ctx)
	rest(ctx, r.outage.goesOn(err, r.stream.Hears(r.clock.Now())))
}

func (r *reader) drop() {
	if r.conn != nil {
		r.conn.close()
		r.conn = nil
	}
}

// before compares two ids of a stream. What is no id lies before everything.
func before(a, b string) bool {
	ams, aseq := split(a)
	bms, bseq := split(b)
	return ams < bms || ams == bms && aseq < bseq
}

func split(id string) (ms, seq uint64) {
	_, _ = fmt.Sscanf(id, "%d-%d", &ms, &seq)
	return ms, seq
}
