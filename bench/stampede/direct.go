package main

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// direct is no cache at all: every read is a query.
type direct struct{ db source }

func openDirect(_ *redis.Client, db source, _ plan) (reader, error) { return direct{db}, nil }

func (d direct) read(ctx context.Context, key string) (string, bool, error) {
	value, err := d.db.query(ctx, key)
	return value, false, err
}

func (d direct) close() error { return nil }
