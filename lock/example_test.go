package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/lock"
)

// register is a table of a database: it refuses what is older than what it has.
type register struct{ fence int64 }

func (r *register) write(fence int64) bool {
	if fence < r.fence {
		return false
	}
	r.fence = fence
	return true
}

func client() (*redis.Client, func()) {
	server, err := redistest.StartAny(redistest.Options{})
	if err != nil {
		panic(err)
	}
	c := redis.NewClient(server.Options())
	return c, func() {
		_ = c.Close()
		_ = server.Stop()
	}
}

func ExampleLocker_Do() {
	client, stop := client()
	defer stop()
	locks, err := lock.New(client, lock.WithLease(5*time.Second))
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	var orders register
	err = locks.Do(context.Background(), "order:10086", func(ctx context.Context, l *lock.Lease) error {
		if !orders.write(l.Fence()) { // commit in here
			return errors.New("somebody was here later")
		}
		return nil
	}, lock.WithWait(3*time.Second))
	fmt.Println(err)
	// Output: <nil>
}

func ExampleLocker_TryLock() {
	client, stop := client()
	defer stop()
	locks, err := lock.New(client)
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	ctx := context.Background()
	l, err := locks.TryLock(ctx, "nightly", lock.WithLabel("report"))
	fmt.Println(l.Valid(), err)

	_, err = locks.TryLock(ctx, "nightly")
	busy, _ := errors.AsType[*lock.BusyError](err)
	fmt.Println(errors.Is(err, lock.ErrBusy), busy.Holder.Label)

	fmt.Println(l.Unlock(ctx), l.Valid())
	// Output:
	// true <nil>
	// true report
	// <nil> false
}

func ExampleLocker_LockAll() {
	client, stop := client()
	defer stop()
	locks, err := lock.New(client)
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	ctx := context.Background()
	both, err := locks.LockAll(ctx, []string{"account:9", "account:4"}) // 4 first, whatever the order
	fmt.Println(both.Lease("account:4").Valid(), both.Lease("account:9").Valid(), err)
	fmt.Println(both.Unlock(ctx))
	// Output:
	// true true <nil>
	// <nil>
}
