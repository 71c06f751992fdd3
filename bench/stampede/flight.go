package main

import (
	"context"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/singleflight"
)

// flight puts a singleflight before it: the callers of one node share what one of them fetches, the nodes know nothing of each other.
type flight struct {
	*none
	group singleflight.Group
}

func openFlight(rdb *redis.Client, db source, p plan) (reader, error) {
	return &flight{none: newNone(rdb, db, p)}, nil
}

func (f *flight) read(ctx context.Context, key string) (string, bool, error) {
	value, err, _ := f.group.Do(key, func() (any, error) {
		value, _, err := f.none.read(ctx, key)
		return value, err
	})
	return value.(string), false, err
}
