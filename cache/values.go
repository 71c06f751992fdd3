package cache

import (
	"context"
	"time"

	"github.com/levee-cache/levee/loader"
	"github.com/levee-cache/levee/rebuild"
)

// values is what package rebuild sees of a cache: it moves values whose type it does not know.
type values[K comparable, V any] struct {
	loader loader.Loader[K, V]
	codec  codec[V]
	local  *local[V]
}

func (vs *values[K, V]) Lookup(k rebuild.Key) rebuild.Copy {
	if h := vs.local.lookup(k.Hash, k.Text, 0); h != nil {
		return h
	}
	return nil
}

func (vs *values[K, V]) Keep(_ rebuild.Key, c rebuild.Copy) { vs.local.keep(c.(*held[V])) }

func (vs *values[K, V]) Drop(k rebuild.Key) { vs.local.drop(k) }

func (vs *values[K, V]) Hash(text string) uint64 { return hashOf(text) }

func (vs *values[K, V]) DropAll() { vs.local.dropAll() }

func (vs *values[K, V]) Load(ctx context.Context, k rebuild.Key, base rebuild.Copy, age time.Duration, done func(rebuild.Outcome, error)) {
	loader.Call(ctx, vs.loader, k.User.(K), previous[V](base, age), func(r loader.Result[V], err error) {
		o := rebuild.Outcome{NotModified: r.NotModified, NoStore: r.NoStore, TTL: r.TTL, Row: r.RowVersion, Tags: r.Tags}
		if err == nil && !r.NotModified {
			o.Copy = vs.make(k, r.Value, 0)
		}
		done(o, err)
	})
}

// previous is what a loader is told of the value that it replaces.
func previous[V any](base rebuild.Copy, age time.Duration) *loader.Previous[V] {
	if base == nil {
		return nil
	}
	h := base.(*held[V])
	return &loader.Previous[V]{Value: h.value, RowVersion: h.meta.Row, Version: int64(h.meta.Version), Age: age}
}

func (vs *values[K, V]) Encode(c rebuild.Copy) (codec byte, payload []byte, err error) {
	h := c.(*held[V])
	codec, payload, err = vs.codec.encode(h.value)
	h.size = len(payload)
	return codec, payload, err
}

func (vs *values[K, V]) Decode(k rebuild.Key, codec byte, payload string, s rebuild.Stamp) (rebuild.Copy, error) {
	v, err := vs.codec.decode(codec, payload)
	if err != nil {
		return nil, err
	}
	h := vs.make(k, v, len(payload))
	h.meta.Stamp = s
	return h, nil
}

func (vs *values[K, V]) Stamped(k rebuild.Key, c rebuild.Copy, s rebuild.Stamp) rebuild.Copy {
	h := vs.make(k, *new(V), 0)
	if c != nil {
		old := c.(*held[V])
		h.value, h.size = old.value, old.size
	}
	h.meta.Stamp = s
	return h
}

func (vs *values[K, V]) make(k rebuild.Key, v V, size int) *held[V] {
	return &held[V]{text: k.Text, hash: k.Hash, value: v, size: size}
}
