package main

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// It has defaults for everything, and its README uses them.
var redsyncs = peer{
	name:     "redsync",
	settings: "NewMutex(name): its defaults, 8 s, 32 tries 50–250 ms apart; who still waits then calls Lock again, as its documentation says",
	open:     openRedsync,
	commands: []string{"set", "evalsha"},
	key:      func(name string) string { return name },
}

type redsyncLocker struct {
	client  *redis.Client
	sync    *redsync.Redsync
	options []redsync.Option
}

func openRedsync(o opening) (locker, error) {
	k := redsyncLocker{client: o.client()}
	k.sync = redsync.New(goredis.NewPool(k.client))
	if o.lease > 0 {
		k.options = append(k.options, redsync.WithExpiry(o.lease))
	}
	return k, nil
}

// mutex is a redsync.Mutex whose Unlock is that of the others.
type mutex redsync.Mutex

func (m *mutex) Unlock(ctx context.Context) error {
	ok, err := (*redsync.Mutex)(m).UnlockContext(ctx)
	if err == nil && !ok {
		err = errors.New("redsync: it was not held")
	}
	return err
}

func (k redsyncLocker) lock(ctx context.Context, name string) (held, error) {
	m := k.sync.NewMutex(name, k.options...)
	for {
		err := m.LockContext(ctx)
		if err == nil {
			return (*mutex)(m), nil
		}
		if ctx.Err() != nil || !lostRace(err) {
			return nil, err
		}
	}
}

// lostRace tells whether others had the lock.
func lostRace(err error) bool {
	_, taken := errors.AsType[*redsync.ErrTaken](err)
	return taken || errors.Is(err, redsync.ErrFailed)
}

func (k redsyncLocker) try(ctx context.Context, name string) (held, error) {
	m := k.sync.NewMutex(name, k.options...)
	if err := m.TryLockContext(ctx); err != nil {
		return nil, err
	}
	return (*mutex)(m), nil
}

func (k redsyncLocker) close() { _ = k.client.Close() }
