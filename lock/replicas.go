package lock

import (
	"context"
	"errors"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// replicas are those that must have a lock before it counts. nil is none.
type replicas struct {
	n int
	d time.Duration
}

// WithReplicas makes a lock count only when n replicas of the server have it too, for which it waits for d at most; else it is
// given back, and the error is an [ErrNotReplicated]. It makes it less likely that a failover loses a lock, and does not
// rule it out: the server that takes over may be one that was not among the n. See docs/replicas.md. n is at
// least 1, d at least 1 ms and at most half of the lease, of which the wait is a part. It
// costs the way to the replicas and back with every acquire, also with one in vain, and nothing later.
// The server must know WAIT.
func WithReplicas(n int, d time.Duration) LockOption {
	return lockOption(func(s *settings) { s.replicas = &replicas{n, d} })
}

func (r *replicas) validate(lease time.Duration) error {
	if r == nil {
		return nil
	}
	return errors.Join(
		unless(r.n >= 1, "WithReplicas: %d replicas are less than 1", r.n),
		unless(r.d >= time.Millisecond, "WithReplicas: %v is less than 1 ms", r.d),
		unless(r.d <= lease/2, "WithReplicas: %v is more than half of the lease, %v", r.d, lease))
}

// patience is how long an acquire may take that takes d without replicas.
func (r *replicas) patience(d time.Duration) time.Duration {
	if r == nil {
		return d
	}
	return d + r.d
}

func (r *replicas) ack(timeout time.Duration) link.Ack {
	return link.Ack{Replicas: r.n, Within: r.d, Patience: r.patience(timeout)}
}

// confirmed tells whether enough replicas have what was acquired; else it is given back, without asking them.
//
// WAIT answers for the replication offset that its connection's last write has reached. An acquire always writes, also for one who
// has the lock already: so if a grant, which was written by the connection of who released, is acquired once more, the
// offset lies behind that of the grant. A replica takes in the stream in order: one that has acknowledged the
// second write has the first, with its fence.
func (k *Locker) confirmed(ctx context.Context, w asking, a answer) error {
	r := w.replicas
	if r == nil || a.acked.Refused == nil && a.acked.Replicas >= r.n {
		return nil
	}
	if _, err := k.release(ctx, w.key, w.token); err != nil {
		w.silent.Store(true) // so it is abandoned
	}
	return &NotReplicatedError{Name: w.name, Acked: a.acked.Replicas, Wanted: r.n, Refused: a.acked.Refused}
}
