package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// By default it does not wait. Where its examples do, they try again every 100 ms; a TTL must be given.
var redislocks = peer{
	name:     "redislock",
	settings: "Obtain with LinearBackoff(100 ms), as its example of waiting has it, and levee's lease: it has no default",
	open:     openRedislock,
	commands: []string{"evalsha"},
	key:      func(name string) string { return name },
}

var patient = &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}

type redislockLocker struct {
	client *redis.Client
	*redislock.Client
	lease time.Duration
}

func openRedislock(o opening) (locker, error) {
	client := o.client()
	return redislockLocker{client, redislock.New(client), cmp.Or(o.lease, leveeLease)}, nil
}

// obtained is a redislock.Lock whose Unlock is that of the others.
type obtained redislock.Lock

func (l *obtained) Unlock(ctx context.Context) error { return (*redislock.Lock)(l).Release(ctx) }

// lock goes on where Obtain has waited for as long as the lease, which is its bound if the context has no deadline.
func (k redislockLocker) lock(ctx context.Context, name string) (held, error) {
	for {
		l, err := k.Obtain(ctx, name, k.lease, patient)
		if err == nil {
			return (*obtained)(l), nil
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
	}
}

func (k redislockLocker) try(ctx context.Context, name string) (held, error) {
	l, err := k.Obtain(ctx, name, k.lease, nil)
	if err != nil {
		return nil, err
	}
	return (*obtained)(l), nil
}

func (k redislockLocker) close() { _ = k.client.Close() }
