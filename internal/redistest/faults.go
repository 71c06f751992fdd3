package redistest

import (
	"context"
	"net"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrTimeout is what a caller gets for a command without a reply: the error of
// a socket whose deadline has passed.
var ErrTimeout error = &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}

// ReplyError returns an error reply as the server would send it, for
// [Faults.Fail]: ReplyError("OOM command not allowed when used memory > 'maxmemory'.").
func ReplyError(text string) error { return replyError(text) }

type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// Faults is a go-redis hook that disturbs the commands of the clients it is
// added to, in a bubble or against a real server. It stands above the client's
// retries: what it does happens to a call, not to an attempt. A pipeline is one
// call, matched if any of its commands is. The first rule that matches decides.
// SUBSCRIBE and its like do not pass through hooks; see [Link] and [Proxy].
type Faults struct {
	// ObeyContext makes waits end with the caller's context. Without it they do
	// not, like the sockets of a client without ContextTimeoutEnabled. Set it
	// before the first use.
	ObeyContext bool

	mu    sync.Mutex // guards rules, and the rules' counters
	rules []*Rule
}

var _ redis.Hook = (*Faults)(nil)

// NewFaults returns a hook without rules, for client.AddHook. Everything it
// holds back is let go when the test ends. For use in a bubble, make it there.
func NewFaults(t TB) *Faults {
	f := &Faults{}
	t.Cleanup(f.Clear)
	return f
}

// Delay waits for d before each match is executed.
func (f *Faults) Delay(m Match, d time.Duration) *Rule {
	return f.add(m, func(r *Rule, ctx context.Context, c call) error {
		if err := r.wait(ctx, d); err != nil {
			return err
		}
		return c.send(ctx)
	})
}

// Hang never executes a match; it fails with [ErrTimeout] after d, or when the
// rule is cleared. With d zero, only then.
func (f *Faults) Hang(m Match, d time.Duration) *Rule {
	return f.add(m, func(r *Rule, ctx context.Context, _ call) error {
		if err := r.wait(ctx, d); err != nil {
			return err
		}
		return ErrTimeout
	})
}

// Fail answers a match with err, or [ErrTimeout] if that is nil, instead of
// executing it.
func (f *Faults) Fail(m Match, err error) *Rule {
	if err == nil {
		err = ErrTimeout
	}
	return f.add(m, func(*Rule, context.Context, call) error { return err })
}

// LoseReply executes a match and fails with [ErrTimeout].
func (f *Faults) LoseReply(m Match) *Rule {
	return f.add(m, func(_ *Rule, ctx context.Context, c call) error {
		c.copy(ctx)
		return ErrTimeout
	})
}

// Hold keeps the caller of a match waiting, and executes it on Release.
func (f *Faults) Hold(m Match) *Rule {
	return f.add(m, func(r *Rule, ctx context.Context, c call) error {
		if err := r.wait(ctx, 0); err != nil {
			return err
		}
		return c.send(ctx)
	})
}

// HoldReply executes a match and keeps its caller waiting for the reply until Release. In a bubble,
// synctest.Wait after Wait tells that it has been executed.
func (f *Faults) HoldReply(m Match) *Rule {
	return f.add(m, func(r *Rule, ctx context.Context, c call) error {
		err := c.send(ctx)
		if late := r.wait(ctx, 0); late != nil {
			return late
		}
		return err
	})
}

// Late fails a match with [ErrTimeout] at once, keeps a copy, and executes that
// on Release: a first attempt that arrives after its caller has tried again.
func (f *Faults) Late(m Match) *Rule {
	return f.add(m, func(r *Rule, _ context.Context, c call) error {
		r.keep(c)
		return ErrTimeout
	})
}

// Repeat executes a match, keeps a copy, and executes that on Release: a first
// attempt that arrives after the client's own blind retry has succeeded.
func (f *Faults) Repeat(m Match) *Rule {
	return f.add(m, func(r *Rule, ctx context.Context, c call) error {
		r.keep(c)
		return c.send(ctx)
	})
}

func (f *Faults) add(m Match, do action) *Rule {
	r := &Rule{faults: f, match: m, do: do, left: -1, seen: make(chan struct{}), open: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, r)
	return r
}

// Clear clears every rule.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		r.endLocked()
	}
	f.rules = nil
}

// DialHook implements redis.Hook; it changes nothing.
func (f *Faults) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (f *Faults) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r := f.caught(cmd)
		if r == nil {
			return next(ctx, cmd)
		}
		err := r.do(r, ctx, single(next, cmd))
		cmd.SetErr(err)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (f *Faults) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r := f.caught(cmds...)
		if r == nil {
			return next(ctx, cmds)
		}
		c := pipeline(next, cmds)
		err := r.do(r, ctx, c)
		if !c.sent() {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
		}
		return err
	}
}

// caught returns the rule that decides over these commands, and counts them.
func (f *Faults) caught(cmds ...redis.Cmder) *Rule {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rules {
		if r.left != 0 && r.match.any(cmds) {
			r.countLocked()
			return r
		}
	}
	return nil
}
