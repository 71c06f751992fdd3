package link

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Ack asks that what a script writes is acknowledged by replicas.
type Ack struct {
	Replicas int
	Within   time.Duration // how long the server waits for them
	Patience time.Duration // how long the client waits for the server
}

// Acked is what a script answered, and how many replicas have acknowledged what it wrote.
type Acked struct {
	Values   []any
	Replicas int
	Refused  error // the server's answer to WAIT, where it does not know it or does not allow it
}

// RunAcked calls a script, and WAIT behind it on the same connection to the master of the key: WAIT speaks of what its own
// connection has written, and a cluster client would send it to any node. The two travel together, so it is not only
// called after a success. A script that only reads, or was called on another connection, is not covered.
func (l *Link) RunAcked(ctx context.Context, c ScriptCall, ack Ack) (Acked, error) {
	node, err := l.node(ctx, c.Key, ack.Patience)
	if err != nil {
		return Acked{}, err
	}
	a, err := c.runAcked(ctx, node, ack, false)
	if !answered(err) {
		l.lookAgain(ctx) // the master may be another one by now
	}
	addr, asking, moved := redirected(err)
	if !moved || l.cluster == nil {
		return a, err
	}
	l.lookAgain(ctx)
	c.refused()
	return l.runAckedAt(ctx, addr, c, ack, asking)
}

// node is a client of the master of key whose reads may take as long as d. One that reads with less patience is made over;
// that costs it its hooks.
func (l *Link) node(ctx context.Context, key string, d time.Duration) (redis.Cmdable, error) {
	node, err := l.masterOf(ctx, key)
	if err != nil {
		return nil, err
	}
	c, ok := node.(interface {
		Options() *redis.Options
		WithTimeout(time.Duration) *redis.Client
	})
	if ok && c.Options().ReadTimeout > 0 && c.Options().ReadTimeout < d {
		return c.WithTimeout(d), nil
	}
	return node, nil
}

// redirected tells to which node of a cluster an answer points, and whether that one is to be told so.
func redirected(err error) (addr string, asking, ok bool) {
	if addr, ok = redis.IsMovedError(err); ok {
		return addr, false, true
	}
	addr, ok = redis.IsAskError(err)
	return addr, true, ok
}

// runAckedAt goes where it was sent by a connection of its own: the client may not know that node yet.
func (l *Link) runAckedAt(ctx context.Context, addr string, c ScriptCall, ack Ack, asking bool) (Acked, error) {
	o, err := l.ownOptions(ctx, c.Key)
	if err != nil {
		return Acked{}, err
	}
	o.Addr = addr
	node := redis.NewClient(o)
	defer node.Close()
	return c.runAcked(ctx, node, ack, asking)
}

func (c ScriptCall) runAcked(ctx context.Context, node redis.Cmdable, ack Ack, asking bool) (Acked, error) {
	a, err := c.pipeAcked(ctx, node, ack, asking, (*redis.Script).EvalSha)
	if !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return a, err
	}
	c.refused()
	return c.pipeAcked(ctx, node, ack, asking, (*redis.Script).Eval)
}

func (c ScriptCall) pipeAcked(ctx context.Context, node redis.Cmdable, ack Ack, asking bool, eval evaluator) (a Acked, err error) {
	pipe := node.Pipeline()
	if asking {
		pipe.Do(ctx, "asking")
	}
	script := eval(c.Script, ctx, pipe, []string{c.Key}, c.Args...)
	wait := pipe.Do(ctx, "wait", ack.Replicas, ack.Within.Milliseconds())
	_, _ = pipe.Exec(ctx) // each command carries its own error
	if a.Values, err = script.Slice(); err != nil {
		return a, err
	}
	a.Replicas, err = wait.Int()
	if err != nil && answered(err) {
		a.Refused, err = err, nil
	}
	return a, err
}
