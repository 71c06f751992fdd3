package main

import (
	"context"
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

// rivals are the others.
var rivals = peers[1:]

func peerNamed(name string) (p peer, ok bool) {
	for _, p := range peers {
		if p.name == name {
			return p, true
		}
	}
	return peer{}, false
}
