package lock

import (
	"context"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// State is what Redis knows of a lock.
type State struct {
	Held      bool
	Granted   bool // to one who waited, and has not been heard of since
	Holder    Holder
	Fence     int64         // of the holder, or of the last one; 0 if none is remembered
	Since     time.Time     // when the holder got it, by the server's clock
	Remaining time.Duration // of the lease, unless it is renewed
	Waiting   int           // processes in the queue
}

// Inspect tells who has the lock called name. It changes nothing.
func (k *Locker) Inspect(ctx context.Context, name string) (State, error) {
	a, err := k.order(ctx, name, link.ScriptCall{Script: scripts.inspect})
	if err != nil {
		return State{}, err
	}
	held := a.text(0) != stateFree
	s := State{Held: held, Granted: a.text(0) == stateGranted, Fence: a.int(1), Waiting: int(a.int(4))}
	if held {
		s.Holder, s.Since = readHolder(a.text(5)), time.UnixMilli(a.int(2))
		s.Remaining = time.Duration(a.int(3))*time.Millisecond - time.Duration(a.micros)*time.Microsecond
	}
	return s, nil
}

// Break takes the lock called name from its holder, if that is the one with this fence, and tells whether it has. The
// holder learns of it with its next renewal, so it may go on for a third of its lease. It is for people: between
// processes let leases end.
func (k *Locker) Break(ctx context.Context, name string, fence int64) (broken bool, err error) {
	a, err := k.order(ctx, name, link.ScriptCall{Script: scripts.breaking, Args: []any{fence}})
	return a.status == statusBroken, err
}

// order runs a script that belongs to nobody's attempt.
func (k *Locker) order(ctx context.Context, name string, c link.ScriptCall) (answer, error) {
	if _, err := k.begin(ctx, name, nil); err != nil {
		return answer{}, err
	}
	defer k.life.leave()
	b := k.budget()
	a, err := k.run(ctx, &b, link.Spared, k.scriptCall(k.key(name), c.Script, noToken, c.Args...))
	if err != nil && ctx.Err() != nil {
		err = leaving(ctx, name)
	}
	return a, err
}
