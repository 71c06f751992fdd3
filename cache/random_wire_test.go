package cache_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// aroundHook is a hook that treats a command and a pipeline alike, and leaves alone what a client
// says when it opens a connection: it does so under a lock.
type aroundHook func(ctx context.Context, cmds []redis.Cmder, next func() error) error

var isOurs = redistest.Name("get", "getrange", "time", "eval", "evalsha")

func (aroundHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h aroundHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !isOurs(cmd) {
			return next(ctx, cmd)
		}
		return h(ctx, []redis.Cmder{cmd}, func() error { return next(ctx, cmd) })
	}
}

func (h aroundHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if !isOurs(cmds[0]) {
			return next(ctx, cmds)
		}
		return h(ctx, cmds, func() error { return next(ctx, cmds) })
	}
}

// watch is the outermost hook: what a node sees of Redis. It notices what goes wrong.
func (n *randomNode) watch(ctx context.Context, cmds []redis.Cmder, next func() error) error {
	began := n.asks(cmds)
	slow := make(chan func(), 1)
	alarm := time.AfterFunc(suspicious, func() { slow <- n.disturb() })
	err := next()
	if !alarm.Stop() {
		(<-slow)()
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	n.slowest = max(n.slowest, n.w.now()-began)
	if values := replied(cmds[0]); len(values) > 3 && values[0] == "leased" && ctx.Err() == nil { // else nobody waits for it
		n.granted[tokenOf(values[3].(string))] = true
	}
	switch {
	case isSilence(err):
		n.troubledNow()
		n.w.note("", "%v: %s: %v", n, describe(cmds), err)
	case n.recovering && n.disturbed == 0 && began > n.trouble+probeAfter && isProbe(cmds[0]):
		n.trouble, n.recovering = n.w.now(), false
	}
	return err
}

// asks remembers when an attempt was first made: what lands late carries the same argument.
func (n *randomNode) asks(cmds []redis.Cmder) time.Duration {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	for _, cmd := range cmds {
		if !isAcquire(cmd) && !isSeizure(cmd) {
			continue
		}
		attempt := scriptArgs(cmd)[0]
		if _, ok := n.asked[attempt]; !ok {
			n.asked[attempt] = n.w.now()
		}
	}
	return n.w.now()
}

func isSilence(err error) bool {
	_, answered := errors.AsType[redis.Error](err)
	return err != nil && !answered && !errors.Is(err, redis.Nil)
}

// travel is the innermost hook: the way to Redis and back. It takes its time, and looks at what
// was executed, also for nobody.
func (n *randomNode) travel(_ context.Context, cmds []redis.Cmder, next func() error) error {
	there, back := n.latency()
	pause(there)
	executed := n.executes(cmds)
	err := next()
	executed(err)
	pause(back)
	return err
}

// pause is for use in a bubble; less than nothing is nothing.
func pause(d time.Duration) {
	if d > 0 {
		time.Sleep(d)
	}
}

func (n *randomNode) latency() (there, back time.Duration) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	there, back = n.w.latency(n.rng), n.w.latency(n.rng)
	if n.w.faulty && !n.w.calm && n.rng.IntN(40) == 0 {
		there += upTo(n.rng, 2*n.w.o.RedisTimeout)
	}
	return there, back
}

// executes tells the reference what may happen in Redis until the returned function is called.
func (n *randomNode) executes(cmds []redis.Cmder) (executed func(error)) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	var revoked []func()
	for _, cmd := range cmds {
		if l := n.w.ledgerOf(cmd); l != nil && isInvalidation(cmd) {
			revoked = append(revoked, l.revokes())
		}
	}
	return func(err error) {
		n.w.mu.Lock()
		defer n.w.mu.Unlock()
		n.unanswered = append(n.unanswered, revoked...)
		if !isSilence(err) {
			n.answered()
		}
		for _, cmd := range cmds {
			n.saw(cmd, err)
		}
	}
}

// answered ends the revocations that were on the wire.
func (n *randomNode) answered() {
	for _, done := range n.unanswered {
		done()
	}
	n.unanswered = nil
}

// saw looks at what a command has done to its entry.
func (n *randomNode) saw(cmd redis.Cmder, err error) {
	l := n.w.ledgerOf(cmd)
	if l == nil {
		return
	}
	values := replied(cmd)
	n.w.note(l.key, "%v: %s -> %s", n, describe([]redis.Cmder{cmd}), summary(values, err))
	if len(values) > 3 && (values[0] == "leased" || values[0] == "seized") {
		l.given(n, n.asked[scriptArgs(cmd)[0]], time.UnixMicro(values[1].(int64)).Sub(n.w.started))
	}
	l.inspect()
}

// given judges a lease. R10: nobody gets one for an attempt that was given up long ago. By how
// long is uncertain by what the node knows of the server's clock.
func (l *ledger) given(n *randomNode, asked, at time.Duration) {
	if limit := l.w.o.RedisTimeout + n.slowest/2 + suspicious; at > asked+limit {
		l.broken("R10", "%v was given a lease %v after it had asked for it, and has long given up", n, at-asked)
	}
}

func (w *randomWorld) ledgerOf(cmd redis.Cmder) *ledger {
	a, at := cmd.Args(), 1
	if len(scriptArgs(cmd)) > 0 {
		at = 3
	}
	for _, l := range w.ledgers {
		if len(a) > at && a[at] == l.redisKey {
			return l
		}
	}
	return nil
}

// replied is what a script has answered, or nil.
func replied(cmd redis.Cmder) []any {
	c, ok := cmd.(*redis.Cmd)
	if !ok || c.Err() != nil {
		return nil
	}
	values, _ := c.Slice()
	return values
}

func describe(cmds []redis.Cmder) string {
	var names []string
	for _, c := range cmds {
		name := c.Name()
		switch a := scriptArgs(c); {
		case isAcquire(c), isLook(c):
			name = fmt.Sprint("acquire ", a[4])
		case len(a) > 0:
			name = scriptNames[len(a)]
		}
		names = append(names, name)
	}
	return strings.Join(names, "+")
}

// scriptNames are by the number of arguments. Acquire shares its own with fail.
var scriptNames = map[int]string{1: "delete/expire", 3: "renew/release/pass", 5: "seize", 6: "fail", 8: "commit"}

func summary(values []any, err error) string {
	switch {
	case len(values) == 0:
		return fmt.Sprint(err)
	case len(values) > 4:
		return fmt.Sprintf("%v %.20v", values[0], values[4])
	}
	return fmt.Sprint(values[0])
}
