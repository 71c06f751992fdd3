package linear

import (
	"context"
	"sync"

	"github.com/levee-cache/levee/cache"
)

// mutant is a node that breaks the promises: the check must find each of them.
type mutant struct {
	faults []fault // that it takes to see it
	change func(*node)
}

var mutants = map[string]mutant{
	"does not delete": {change: func(n *node) {
		n.remove = func(context.Context) error { return nil }
	}},
	"deletes as another program would": {change: func(n *node) {
		n.remove = func(ctx context.Context) error { return n.rdb.Del(ctx, n.cache.RedisKey(key)).Err() }
	}},
	"tells nobody": {change: func(n *node) {
		if n.Node > 0 { // one must: where nobody tells, nobody listens
			n.options.StreamLength = cache.Off
		}
	}},
	"deletes before it writes": {change: func(n *node) {
		remove, update := n.remove, n.update
		n.update = func(ctx context.Context) (int64, error) {
			_ = remove(ctx)
			return update(ctx)
		}
		n.remove = func(context.Context) error { return nil }
	}},
	"takes an unconfirmed delete for a confirmed one": {faults: []fault{allHoled, allRefused}, change: func(n *node) {
		n.options.RetryDeletes = cache.Off
		remove := n.remove
		n.remove = func(ctx context.Context) error {
			_ = remove(ctx)
			return nil
		}
	}},
	"believes what it holds whatever it hears": {change: func(n *node) {
		m := &memory{get: n.get, remove: n.remove}
		n.get, n.remove = m.entry, m.delete
	}},
}

// memory is a cache before the cache that only its own node's deletes reach.
type memory struct {
	get    func(context.Context) (cache.Entry[int64], error)
	remove func(context.Context) error

	mu    sync.Mutex // guards what follows
	held  cache.Entry[int64]
	holds bool
}

func (m *memory) entry(ctx context.Context) (cache.Entry[int64], error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var err error
	if !m.holds {
		m.held, err = m.get(ctx)
		m.holds = err == nil
	}
	return m.held, err
}

func (m *memory) delete(ctx context.Context) error {
	err := m.remove(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds = false
	return err
}
