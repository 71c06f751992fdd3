package main

import (
	"context"
	"errors"
	"time"

	"github.com/levee-cache/levee/lock"
	"github.com/redis/go-redis/v9"
)

var levee = peer{
	name:     "levee",
	settings: "lock.New(client): its defaults, a lease of 10 s, renewed",
	open:     openLevee,
	commands: []string{"evalsha"},
}

const leveeLease = 10 * time.Second

type leveeLocker struct {
	client *redis.Client
	*lock.Locker
}

func openLevee(o opening) (locker, error) {
	var options []lock.Option
	if o.lease > 0 {
		options = append(options, lock.WithLease(o.lease))
	}
	client := o.client()
	k, err := lock.New(client, options...)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return leveeLocker{client, k}, nil
}

func (k leveeLocker) lock(ctx context.Context, name string) (held, error) {
	l, err := k.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (k leveeLocker) try(ctx context.Context, name string) (held, error) {
	l, err := k.TryLock(ctx, name)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (k leveeLocker) close() {
	_ = k.Close()
	_ = k.client.Close()
}
