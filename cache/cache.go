package cache

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/loader"
	"github.com/levee-cache/levee/rebuild"
)

// Cache reads values of type V through memory and Redis from a loader, by keys of type K. All
// methods are safe for concurrent use.
//
// Keys are strings, integers or encoding.TextMarshalers; two keys with the same text are one
// key. Values are shared by all callers and by the cache: nobody may change one, unless
// Options.Clone is set.
type Cache[K comparable, V any] struct {
	keys      keys[K]
	local     *local[V]
	node      *rebuild.Node
	link      *link.Link
	clone     func(V) V // nil: values are shared
	waitFresh time.Duration
	free      func() // gives the name back

	once        sync.Once
	hits, stale counter
}

// New makes a cache that loads with l what it does not have. Caches of the same name, Prefix
// and Schema on the same Redis share their entries, also in one process; their values must be
// of one type. New succeeds while Redis is away: it only talks to it where Options.Tracking is
// set. All faults of the arguments are returned at once.
func New[K comparable, V any](name string, l loader.Loader[K, V], o Options) (*Cache[K, V], error) {
	o, err := o.validate()
	faults := []error{err}
	if !word.MatchString(name) {
		faults = append(faults, fmt.Errorf("the name may only have letters, digits, '.', '_' and '-'"))
	}
	if l == nil {
		faults = append(faults, errors.New("the loader is nil"))
	}
	c := &Cache[K, V]{}
	if o.Clone {
		c.clone, err = cloner[V]()
		faults = append(faults, err)
	}
	if o.Redis != nil {
		c.link, err = link.Open(o.Redis)
		if err != nil {
			err = fmt.Errorf("Options.Redis: %w", err)
		}
		faults = append(faults, err)
	}
	c.keys, err = newKeys[K](o, name, c.db())
	if err = errors.Join(append(faults, err)...); err == nil {
		err = c.open(l, o)
	}
	if err != nil {
		c.closeLink()
		return nil, fmt.Errorf("levee: cache %q: %w", name, err)
	}
	return c, nil
}

// open makes what needs closing.
func (c *Cache[K, V]) open(l loader.Loader[K, V], o Options) (err error) {
	if c.link != nil {
		if c.free, err = c.link.Claim(c.keys.prefix, reflect.TypeFor[V]()); err != nil {
			return err
		}
	}
	if c.local, err = newLocal[V](o.LocalMaxBytes); err != nil {
		return err
	}
	c.waitFresh = o.WaitFresh
	c.node = rebuild.New(c.link, &values[K, V]{loader: l, codec: codecFor[V](), local: c.local}, o.policy(c.keys.stream, c.keys.prefix))
	if c.link != nil && o.Tracking {
		ctx, cancel := context.WithTimeout(context.Background(), o.RedisTimeout)
		defer cancel()
		if err := c.node.Track(ctx); err != nil {
			c.node.Close()
			c.local.close()
			return fmt.Errorf("Options.Tracking: %w", err)
		}
	}
	return nil
}

func (c *Cache[K, V]) db() int {
	if c.link == nil {
		return 0
	}
	return c.link.DB()
}

func (c *Cache[K, V]) closeLink() {
	if c.free != nil {
		c.free()
	}
	if c.link != nil {
		c.link.Close()
	}
}

// cloner is the Clone method of V.
func cloner[V any]() (func(V) V, error) {
	if _, ok := any(*new(V)).(interface{ Clone() V }); !ok {
		return nil, fmt.Errorf("Options.Clone: %v has no method Clone() %[1]v", reflect.TypeFor[V]())
	}
	return func(v V) V { return any(v).(interface{ Clone() V }).Clone() }, nil
}

// RedisKey is the name of key's entry in Redis, for other programs: a DEL of it is a full
// invalidation there. It is empty for a key that does not marshal.
func (c *Cache[K, V]) RedisKey(key K) string {
	var buf [textBuffer]byte
	text, err := c.keys.text(key, &buf)
	if err != nil {
		return ""
	}
	return c.keys.full(key, text).Redis
}

// Shutdown begins no more loads, waits until none is running or ctx ends, and then closes. It
// returns ctx's error if it did not wait to the end.
func (c *Cache[K, V]) Shutdown(ctx context.Context) error {
	err := c.node.Shutdown(ctx)
	return errors.Join(err, c.Close())
}

// Close stops the cache: callers that wait, and loads, end with [ErrClosed]; leases are given
// back within one RedisTimeout. It returns when everything of this cache has ended, but for
// loaders that ignore their context and calls stuck inside the client. It never closes the
// client, and may be called at any time, and again.
func (c *Cache[K, V]) Close() error {
	c.node.Close()
	c.once.Do(func() {
		c.local.close()
		c.closeLink()
	})
	return nil
}
