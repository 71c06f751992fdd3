package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
)

// What scripts answer.
const (
	statusLate      = "late"
	statusForeign   = "foreign"
	statusAcquired  = "acquired"
	statusAbandoned = "abandoned"
	statusBusy      = "busy"
	statusHeld      = "held"
	statusLost      = "lost"
	statusReleased  = "released"
	statusLeft      = "left"
	statusGone      = "gone"
	statusBroken    = "broken"
	statusOther     = "other"
	statusSeen      = "seen"
	statusDone      = "done"
	statusFree      = "free"
)

// answer is what a script said: status, server time, and what else it has to say.
type answer struct {
	status string
	micros int64        // server time
	sent   link.Instant // when it was asked, on the node's clock
	values []any
	acked  link.Acked // of an acquire that replicas are to confirm
}

func readAnswer(values []any, sent link.Instant) (answer, error) {
	if len(values) < 2 {
		return answer{}, fmt.Errorf("a script answered %d values", len(values))
	}
	status, _ := values[0].(string)
	micros, _ := values[1].(int64)
	return answer{status: status, micros: micros, sent: sent, values: values[2:]}, nil
}

// int reads the answer's value at i.
func (a answer) int(i int) int64 {
	if i >= len(a.values) {
		return 0
	}
	n, _ := a.values[i].(int64)
	return n
}

// text reads the answer's value at i.
func (a answer) text(i int) string {
	if i >= len(a.values) {
		return ""
	}
	s, _ := a.values[i].(string)
	return s
}

func (a answer) duration(i int) time.Duration { return time.Duration(a.int(i)) * time.Millisecond }

// scriptCall is a call of a script on a lock. token is a string or an [*attempt].
func (k *Locker) scriptCall(key string, script *redis.Script, token any, args ...any) link.ScriptCall {
	all := make([]any, 0, 3+len(args))
	all = append(append(all, token, k.inboxes, k.counted), args...)
	return link.ScriptCall{Script: script, Key: key, Args: all}
}

// run calls a script within b, and learns the time from its answer.
func (k *Locker) run(ctx context.Context, b *link.Budget, class link.Class, call link.ScriptCall) (answer, error) {
	return k.runConfirmed(ctx, b, class, call, nil)
}

// runConfirmed is run, but for replicas to confirm what was written, unless r is nil.
func (k *Locker) runConfirmed(ctx context.Context, b *link.Budget, class link.Class, call link.ScriptCall, r *replicas) (answer, error) {
	a, err := link.Call(ctx, k.link, b, class, func(ctx context.Context) (a answer, err error) {
		var acked link.Acked
		sent := k.link.Clock.Now()
		if r == nil {
			acked.Values, err = call.Run(ctx, k.link.Client)
		} else {
			acked, err = k.link.RunAcked(ctx, call, r.ack(k.config.timeout))
		}
		if err != nil {
			return answer{}, err
		}
		a, err = readAnswer(acked.Values, sent)
		a.acked = acked
		k.observe(ctx, call.Key, sent, a.micros)
		return a, err
	})
	switch {
	case err == nil && a.status == statusForeign:
		return a, conflict(call.Key)
	case err != nil:
		return a, kindOf(call.Key, err)
	}
	return a, nil
}

// observe learns the time from an answer. If the clock was set, leases may have ended before they should: all are
// looked after.
func (k *Locker) observe(ctx context.Context, key string, sent link.Instant, micros int64) {
	step := k.link.Clock.Observe(k.link.Master(ctx, key), sent, k.link.Clock.Now(), micros)
	if step != 0 {
		k.link.Leases.Hurry()
		k.tell(Event{Kind: ClockStepped, Name: strings.TrimPrefix(key, k.config.prefix), Key: key,
			Err: fmt.Errorf("lock: the clock of redis was set, by %v or more", step)})
	}
}

func conflict(key string) error { return fmt.Errorf("%w: key %q", ErrConflict, key) }

// kindOf makes every error one of ours.
func kindOf(key string, err error) error {
	switch {
	case strings.Contains(err.Error(), "WRONGTYPE"):
		return fmt.Errorf("%w: %w", conflict(key), err)
	case errors.Is(err, ErrUnavailable):
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// definite tells whether Redis has answered, be it with an error.
func definite(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return err == nil || ok
}

// errLate is returned if Redis found a command too late twice: it is as good as away.
var errLate = fmt.Errorf("%w: it executes commands later than they are wanted", ErrUnavailable)

// asking is what an acquire asks for.
type asking struct {
	name, key string
	*attempt
	*settings
	inbox string        // noToken if there is none
	alive time.Duration // above 0 to be put in the queue
}

// acquire calls the script. One that Redis calls late is repeated once: the answer has corrected the
// clock.
func (k *Locker) acquire(ctx context.Context, w asking) (answer, error) {
	b := link.Budget{Left: w.replicas.patience(k.config.timeout)}
	for range 2 {
		notAfter, err := k.wanted(ctx, &b, w.key, w.attempt)
		if err != nil {
			return answer{}, err
		}
		a, err := k.runConfirmed(ctx, &b, link.Spared, k.scriptCall(w.key, k.config.taking(), w.attempt,
			millis(w.lease), w.holder, w.inbox, millis(w.alive), flag(w.barge), notAfter), w.replicas)
		w.came(err)
		switch {
		case err == nil && a.status == statusAcquired:
			return a, k.confirmed(ctx, w, a)
		case err != nil || a.status != statusLate:
			return a, err
		}
	}
	return answer{}, errLate
}

// taking is the script that takes a lock.
func (c *config) taking() *redis.Script {
	if c.once() {
		return scripts.start
	}
	return scripts.acquire
}

func (k *Locker) release(ctx context.Context, key, token string) (answer, error) {
	b := link.Budget{Left: releasePatience}
	return k.run(ctx, &b, link.Urgent, k.scriptCall(key, scripts.release, token))
}

// releasePatience is how long a release may take: nobody waits for it but its caller.
const releasePatience = time.Second

// budget is what one call of Redis may take.
func (k *Locker) budget() link.Budget { return link.Budget{Left: k.config.timeout} }

// millis is d in the wire's unit, rounded up: a lifetime is never cut to nothing.
func millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
