package main

import (
	"context"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// Its README recommends one key where there is one Redis, and NOLOOP from Redis 7.0.5 up.
var rueidislocks = peer{
	name:     "rueidislock",
	settings: "KeyMajority 1 and NoLoopTracking, as its README says for one Redis from 7.0.5 up; else its defaults, 5 s, renewed",
	open:     openRueidislock,
	commands: []string{"evalsha"},
	key:      func(name string) string { return "rueidislock:0:" + name },
}

type rueidisLocker struct{ rueidislock.Locker }

func openRueidislock(o opening) (locker, error) {
	k, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{o.addr}},
		KeyValidity:    o.lease,
		KeyMajority:    1,
		NoLoopTracking: true,
	})
	return rueidisLocker{k}, err
}

// release is the way in which its locks are given back.
type release context.CancelFunc

func (r release) Unlock(context.Context) error {
	r()
	return nil
}

func (k rueidisLocker) lock(ctx context.Context, name string) (held, error) {
	_, cancel, err := k.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return release(cancel), nil
}

func (k rueidisLocker) try(ctx context.Context, name string) (held, error) {
	_, cancel, err := k.TryWithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return release(cancel), nil
}

func (k rueidisLocker) close() { k.Close() }
