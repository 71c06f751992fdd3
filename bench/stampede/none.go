package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// none is the cache that everybody writes first: GET, load what is missing, SET.
type none struct {
	rdb   *redis.Client
	db    source
	space string
	ttl   time.Duration
}

func openNone(rdb *redis.Client, db source, p plan) (reader, error) {
	return newNone(rdb, db, p), nil
}

func newNone(rdb *redis.Client, db source, p plan) *none {
	return &none{rdb: rdb, db: db, space: p.Space + ":", ttl: p.TTL}
}

func (n *none) read(ctx context.Context, key string) (string, bool, error) {
	value, err := n.rdb.Get(ctx, n.space+key).Result()
	if !errors.Is(err, redis.Nil) {
		return value, false, err
	}
	if value, err = n.db.query(ctx, key); err != nil {
		return "", false, err
	}
	return value, false, n.rdb.Set(ctx, n.space+key, value, n.ttl).Err()
}

func (n *none) close() error { return nil }
