package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// peer is a library under measurement, at the settings that its own documentation recommends for one Redis 7.
type peer struct {
	name     string
	settings string // which those are, and where they stand
	open     func(opening) (locker, error)
	commands []string                 // what it sends, as the server's statistics call it
	key      func(name string) string // where a lock is, of those whose keys are gone when it is free
}

// opening is what a locker is opened with.
type opening struct {
	addr     string
	lease    time.Duration // 0: as the peer recommends
	deadline bool          // the client's sockets keep the context's deadline
}

// client has go-redis's defaults, the same for all that use it.
func (o opening) client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: o.addr, ContextTimeoutEnabled: o.deadline})
}

// locker is one process's way to the locks, with a client of its own.
type locker interface {
	lock(ctx context.Context, name string) (held, error) // waits until ctx ends
	try(ctx context.Context, name string) (held, error)
	close()
}

// held is a lock that was taken. The handles of the libraries are one, or become one without an allocation.
type held interface {
	Unlock(context.Context) error
}

var peers = []peer{levee, redsyncs, redislocks, rueidislocks}

func peerNamed(name string) (p peer, ok bool) {
	for _, p := range peers {
		if p.name == name {
			return p, true
		}
	}
	return peer{}, false
}

// patience is how long a lock is waited for that nobody has.
const patience = 2 * time.Second

// lockSoon takes a lock that nobody has. rueidislock may wait for such a one for ever: after an attempt that took
// longer than its 20 ms it waits for a message that need not come. So it is tried again.
func lockSoon(k locker, name string) (h held, err error) {
	for range 5 {
		ctx, cancel := context.WithCancel(context.Background()) // its lock ends with the context, so that must not have an end
		stop := time.AfterFunc(patience, cancel)
		h, err = k.lock(ctx, name)
		if stop.Stop() && err == nil {
			return h, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("%s: not to be had, though nobody has it", name), err)
}
