package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// A reader is one node of the fleet, as its callers see it. Many callers use it at once.
type reader interface {
	read(ctx context.Context, key string) (value string, stale bool, err error)
	close() error
}

// plan is what a node of any mode needs to know.
type plan struct {
	TTL, Stale time.Duration
	Space      string // first part of every key in Redis, this run's and mode's own
	Callers    int    // on this node
}

// modes in the order of the report.
var modes = []struct {
	name string
	open func(rdb *redis.Client, db source, p plan) (reader, error)
}{
	{"direct", openDirect},
	{"none", openNone},
	{"flight", openFlight},
	{"levee", openLevee},
}

func modeNames() (names []string) {
	for _, m := range modes {
		names = append(names, m.name)
	}
	return names
}

// node is a reader with the client it owns.
type node struct {
	reader
	rdb *redis.Client
}

func openNode(mode, address string, m *meter, db source, p plan) (*node, error) {
	for _, known := range modes {
		if known.name != mode {
			continue
		}
		rdb, err := m.client(address)
		if err != nil {
			return nil, err
		}
		r, err := known.open(rdb, db, p)
		if err != nil {
			return nil, errors.Join(err, rdb.Close())
		}
		return &node{r, rdb}, nil
	}
	return nil, fmt.Errorf("no mode %q", mode)
}

func (n *node) close() error {
	return errors.Join(n.reader.close(), n.rdb.Close())
}
