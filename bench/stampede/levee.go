package main

import (
	"context"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
	"github.com/redis/go-redis/v9"
)

// lease is levee's default, spelled out because -kill is measured against it.
const lease = 3 * time.Second

// poll is the longest time after which a node looks again at a lease that somebody else held: 500 ms, give or take half.
const poll = 750 * time.Millisecond

type levee struct {
	cache *cache.Cache[string, string]
}

// openLevee keeps the defaults but for four things: no jitter, so that values live as long in every mode; no early
// refresh, so that they do expire, which is what there is to see; the stale window that the command line asks for; and no
// caller refused for the number of its neighbours.
func openLevee(rdb *redis.Client, db source, p plan) (reader, error) {
	stale := p.Stale
	if stale == 0 {
		stale = cache.Off
	}
	c, err := cache.New("key", loader.Func(db.query), cache.Options{
		Redis:                rdb,
		Prefix:               p.Space,
		TTL:                  p.TTL,
		TTLJitter:            cache.Off,
		EarlyRefresh:         cache.Off,
		StaleWhileRevalidate: stale,
		StaleIfError:         stale,
		Lease:                lease,
		MaxConcurrentLoads:   max(256, p.Callers),
	})
	if err != nil {
		return nil, err
	}
	return &levee{c}, nil
}

func (l *levee) read(ctx context.Context, key string) (string, bool, error) {
	entry, err := l.cache.GetEntry(ctx, key)
	return entry.Value, entry.State == cache.StateStale, err
}

func (l *levee) close() error { return l.cache.Close() }
