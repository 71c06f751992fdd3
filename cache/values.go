package cache

import (
	"context"

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

func (vs *values[K, V]) Load(ctx context.Context, k rebuild.Key, done func(rebuild.Copy, error)) {
	loader.Call(ctx, vs.loader, k.User.(K), func(v V, err error) {
		if err != nil {
			done(nil, err)
			return
		}
		done(vs.make(k, v, 0), nil)
	})
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
