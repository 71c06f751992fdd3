package rebuild

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// heldCall is a hook that keeps one command back: before the server gets it, or after it has
// executed it and before its caller knows. The caller's context does not matter, as it does not
// for what is on the wire.
type heldCall struct {
	t        *testing.T
	match    redistest.Match
	before   bool
	caught   atomic.Bool
	here     chan struct{} // closed when the command has come so far
	executed chan struct{} // closed when the server has answered it
	open     chan struct{} // closed by release
	release  func()
}

// holdReply keeps back the reply to the next command of n that matches.
func (n *testNode) holdReply(match redistest.Match) *heldCall { return n.hold(match, false) }

// holdCall keeps back the next command of n that matches.
func (n *testNode) holdCall(match redistest.Match) *heldCall { return n.hold(match, true) }

func (n *testNode) hold(match redistest.Match, before bool) *heldCall {
	h := &heldCall{t: n.t, match: match, before: before, here: make(chan struct{}), executed: make(chan struct{}), open: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.open) })
	n.client.AddHook(h)
	n.t.Cleanup(h.release)
	return h
}

// wait waits until a command is kept back; it is to be used in a bubble.
func (h *heldCall) wait() {
	h.t.Helper()
	synctest.Wait()
	select {
	case <-h.here:
	default:
		h.t.Fatal("no such command has come")
	}
}

func (h *heldCall) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *heldCall) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return h.pass(ctx, h.match(cmd), func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

func (h *heldCall) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.pass(ctx, slices.ContainsFunc(cmds, h.match), func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

func (h *heldCall) pass(ctx context.Context, matches bool, execute func(context.Context) error) error {
	if !matches || !h.caught.CompareAndSwap(false, true) {
		return execute(ctx)
	}
	if h.before {
		close(h.here)
		<-h.open
	}
	err := execute(context.WithoutCancel(ctx))
	close(h.executed)
	if !h.before {
		close(h.here)
		<-h.open
	}
	return err
}
