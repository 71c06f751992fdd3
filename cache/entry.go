package cache

import (
	"time"

	"github.com/levee-cache/levee/rebuild"
)

// Source tells where a value came from.
type Source uint8

const (
	SourceLocal  Source = Source(rebuild.Local)  // this process's memory
	SourceRemote Source = Source(rebuild.Remote) // Redis
	SourceLoaded Source = Source(rebuild.Loaded) // the loader, called for this call or one it joined
)

// String is the lower-case name.
func (s Source) String() string {
	switch s {
	case SourceLocal:
		return "local"
	case SourceRemote:
		return "remote"
	case SourceLoaded:
		return "loaded"
	}
	return "unknown"
}

// State tells whether a value is within its TTL.
type State uint8

const (
	StateFresh State = iota // within its TTL
	StateStale              // past it: served while it is refreshed, or since the refresh failed
)

// String is the lower-case name.
func (s State) String() string {
	if s == StateFresh {
		return "fresh"
	}
	return "stale"
}

// Entry is a value and what there is to say of it.
type Entry[V any] struct {
	Value V
	// NotFound is set if what is cached is that the record does not exist.
	NotFound bool
	Source   Source
	State    State
	// Age is the time since the load began that made the value.
	Age time.Duration
	// Version grows with each stored value of the key: Redis server microseconds at the start
	// of the load. It is 0 for a value that Redis does not hold.
	Version int64
	// Err says why a stale value was served, where there is more to say than that its refresh
	// is under way: the failed load, a *BackoffError, or Redis being away.
	Err error
}

func (c *Cache[K, V]) entry(h *held[V], source Source, state rebuild.State, err error) Entry[V] {
	e := Entry[V]{
		Value:    h.value,
		NotFound: h.meta.Kind == rebuild.KindNotFound,
		Source:   source,
		Age:      time.Duration(c.node.Now() - h.meta.Loaded),
		Version:  int64(h.meta.Version),
		Err:      err,
	}
	if state == rebuild.Stale || state == rebuild.IfError {
		e.State = StateStale
	}
	if c.clone != nil && !e.NotFound {
		e.Value = c.clone(h.value)
	}
	return e
}
