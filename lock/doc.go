// Package lock takes locks in Redis for jobs that must not run twice at once on any node: a
// sale of the last items, a scheduled job, the step of a state machine.
//
//	locks, err := lock.New(client)
//	err = locks.Do(ctx, "order:10086", func(ctx context.Context, l *lock.Lease) error {
//		return db.Pay(ctx, 10086, l.Fence()) // commit in here
//	})
//
// A lock is a lease: it is renewed while its holder lives, ends by itself when he does not, and
// its context ends before it does and says why. Who waits stands in a queue in Redis and is told when it
// is his turn. Redis is one server, one behind Sentinel, or a cluster; a failover may lose a lock that was just
// taken, so what must never happen twice is refused by the fence, or by a version in the database.
//
// The rebuild leases of package rebuild are a [Claim]: the same lease, living inside a cache entry.
package lock
