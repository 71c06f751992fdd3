package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/levee-cache/levee/rebuild"
)

// CallOption changes one call of Get or GetEntry. It is a plain value: passing one allocates
// nothing.
type CallOption struct {
	want  rebuild.Want
	waits bool // want.Wait counts, be it zero
}

// Fresh lets a call be answered with nothing stale: where others would be served a stale value,
// it waits for the new one, and fails if the load does.
func Fresh() CallOption { return CallOption{want: rebuild.Want{Fresh: true}} }

// NoStore lets a call be answered without leaving a trace: it is served what is cached, and joins
// a load that is running, of whichever node; but a load of its own is shared with nobody, and is
// kept neither in Redis nor in memory. Nor does it begin a refresh. For those who read what nobody
// else will: a crawler, an export.
func NoStore() CallOption { return CallOption{want: rebuild.Want{NoStore: true}} }

// SkipLocal lets a call be answered by Redis rather than by this process's memory: it sees what
// another node has just stored or deleted. A load of this node that is running is joined all the
// same. Without Redis it changes nothing.
func SkipLocal() CallOption { return CallOption{want: rebuild.Want{SkipLocal: true}} }

// WaitFresh is Options.WaitFresh for one call. Zero or less does not wait.
func WaitFresh(d time.Duration) CallOption {
	return CallOption{want: rebuild.Want{Wait: max(d, 0)}, waits: true}
}

// fold joins the options of a call; the last WaitFresh counts.
func (c *Cache[K, V]) fold(options []CallOption) rebuild.Want {
	all := rebuild.Want{Wait: c.waitFresh}
	for _, o := range options {
		all.Fresh = all.Fresh || o.want.Fresh
		all.NoStore = all.NoStore || o.want.NoStore
		all.SkipLocal = all.SkipLocal || o.want.SkipLocal
		if o.waits {
			all.Wait = o.want.Wait
		}
	}
	return all
}

// SetOption changes one call of Set.
type SetOption struct {
	row  uint64
	ttl  time.Duration
	owns bool // ttl counts, be it zero
	tags []string
}

// RowVersion gives the database's version of the row that a Set writes, a number above zero
// that grows with each write: a Set with a lower one than the entry's changes nothing. Two
// writers whose calls of Set may come in another order than their writes need it.
func RowVersion(n uint64) SetOption { return SetOption{row: n} }

// WithTTL gives the value a fresh time of its own instead of Options.TTL, jittered as any, from
// above zero to a year. A later load decides anew: the loader's word on the TTL is the last.
func WithTTL(d time.Duration) SetOption { return SetOption{ttl: d, owns: true} }

// Tags gives the value of a Set tags, as loader.Result does that of a load: InvalidateTag and
// ExpireTag end all values with a tag at once. Up to 64, each of 1 to 256 bytes.
func Tags(tags ...string) SetOption { return SetOption{tags: tags} }

// Get returns the value of key: from memory or Redis as long as it is fresh, or stale within
// its windows; else it loads it, or waits for whoever in the fleet is loading it. All callers
// of one node that need a load share one, also its error.
//
// ctx bounds this caller's wait only: the load goes on without it, with the values of the
// first caller's context. What is cached is served whatever ctx says.
//
// The error is the loader's own; [ErrNotFound] if the record does not exist; a [*BackoffError]
// if the load failed a short while ago; or one of the errors of this package, or ctx's.
func (c *Cache[K, V]) Get(ctx context.Context, key K, options ...CallOption) (V, error) {
	if h, _ := c.hit(ctx, key, options); h != nil {
		if h.meta.Kind == rebuild.KindNotFound {
			return h.value, ErrNotFound
		}
		if c.clone != nil {
			return c.clone(h.value), nil
		}
		return h.value, nil
	}
	e, err := c.miss(ctx, key, c.fold(options))
	return e.Value, err
}

// GetEntry is Get, and tells what was served: from where, how old, and why a stale value was.
// With [ErrNotFound] the entry has NotFound set.
func (c *Cache[K, V]) GetEntry(ctx context.Context, key K, options ...CallOption) (Entry[V], error) {
	h, state := c.hit(ctx, key, options)
	if h == nil {
		return c.miss(ctx, key, c.fold(options))
	}
	var why error
	if state == rebuild.Stale {
		why = c.node.Failure(h.text)
	}
	return c.found(c.entry(h, SourceLocal, state, why))
}

// found gives an entry the error that goes with it.
func (c *Cache[K, V]) found(e Entry[V]) (Entry[V], error) {
	if e.NotFound {
		return e, ErrNotFound
	}
	return e, nil
}

// hit answers from memory where nobody needs to be asked: with what is believed, and fresh or
// inside stale-while-revalidate. It takes no lock and allocates nothing. What will need a look
// at Redis or a load soon is seen to in the background.
func (c *Cache[K, V]) hit(ctx context.Context, key K, options []CallOption) (*held[V], rebuild.State) {
	var buf [textBuffer]byte
	text, err := c.keys.text(key, &buf)
	if err != nil {
		return nil, rebuild.Gone // miss will say so
	}
	if len(options) > 0 && c.fold(options).SkipLocal && c.link != nil {
		return nil, rebuild.Gone
	}
	now := c.node.Now()
	h := c.local.lookup(hashOf(text), text, now)
	if h == nil {
		return nil, rebuild.Gone
	}
	m := &h.meta
	if now < m.Due && c.node.Sound(m, now) {
		c.hits.add(now)
		return h, rebuild.Fresh
	}
	w, state := c.fold(options), m.At(now)
	if !c.node.Believes(m, now) || state == rebuild.Gone || state == rebuild.IfError || state == rebuild.Stale && (w.Fresh || w.Wait > 0) {
		return nil, state
	}
	if !w.NoStore && !m.Rests(now) && c.node.Calls(m, now) {
		c.node.Tend(ctx, c.keys.full(key, text), h)
	}
	if state == rebuild.Stale {
		c.stale.add(now)
	} else {
		c.hits.add(now)
	}
	return h, state
}

// miss asks Redis or the loader.
func (c *Cache[K, V]) miss(ctx context.Context, key K, w rebuild.Want) (Entry[V], error) {
	k, err := c.key(key)
	if err != nil {
		return Entry[V]{}, err
	}
	return c.answer(c.node.Get(ctx, k, w))
}

func (c *Cache[K, V]) answer(a rebuild.Answer, err error) (Entry[V], error) {
	if err != nil {
		return Entry[V]{}, err
	}
	return c.found(c.entry(a.Copy.(*held[V]), Source(a.Source), a.State, a.Err))
}

func (c *Cache[K, V]) key(key K) (rebuild.Key, error) {
	var buf [textBuffer]byte
	text, err := c.keys.text(key, &buf)
	if err != nil {
		return rebuild.Key{}, err
	}
	return c.keys.full(key, text), nil
}

// Peek returns what is cached of key, in memory or in Redis, fresh or stale. It never loads,
// and joins no load. ok is false if nothing is cached; an entry with NotFound set says that
// the record is known not to exist. The error says that Redis could not be asked.
func (c *Cache[K, V]) Peek(ctx context.Context, key K) (e Entry[V], ok bool, err error) {
	k, err := c.key(key)
	if err != nil {
		return e, false, err
	}
	a, ok, err := c.node.Peek(ctx, k)
	if !ok {
		return e, false, err
	}
	return c.entry(a.Copy.(*held[V]), Source(a.Source), a.State, a.Err), true, nil
}

// Refresh returns the result of a load that began after this call, on whichever node. It joins
// no load that began before, so two at once may take turns. A key in back-off is not loaded:
// the error is a [*BackoffError].
func (c *Cache[K, V]) Refresh(ctx context.Context, key K) (V, error) {
	k, err := c.key(key)
	if err != nil {
		return *new(V), err
	}
	e, err := c.answer(c.node.Refresh(ctx, k))
	return e.Value, err
}

// Set stores v as the value of key, after it was written to the database. It revokes a load
// that is running anywhere, and a value it brings is kept nowhere. A later Get of this node
// returns v or something newer; other nodes do at the latest after LocalTTL. A value that is
// too large, not encodable, or given a TTL out of range, is not stored, but the old one is gone
// all the same.
//
// The error is an [*InvalidationError] if Redis did not confirm that the old value is gone.
func (c *Cache[K, V]) Set(ctx context.Context, key K, v V, options ...SetOption) error {
	k, err := c.key(key)
	if err != nil {
		return err
	}
	var o SetOption
	for _, one := range options {
		o.row = cmp.Or(one.row, o.row)
		o.tags = append(o.tags, one.tags...)
		if one.owns {
			o.ttl, o.owns = one.ttl, true
		}
	}
	if err := o.fault(); err != nil {
		return errors.Join(fmt.Errorf("levee: Set of key %q: %w", k.Text, err), c.node.Delete(ctx, []rebuild.Key{k}))
	}
	return c.node.Set(ctx, k, &held[V]{text: k.Text, hash: k.Hash, value: v}, rebuild.Written{TTL: o.ttl, Row: o.row, Tags: o.tags})
}

func (o SetOption) fault() error {
	if o.owns && (o.ttl <= 0 || o.ttl > longest) {
		return fmt.Errorf("WithTTL(%v) is not above zero and within a year", o.ttl)
	}
	return rebuild.CheckTags(o.tags)
}

// Delete removes keys everywhere: the next Get loads. A load that is running anywhere may
// still answer those who wait for it, but what it brings is kept nowhere. After Delete has
// returned without an error no Get of this node that starts later returns an older value;
// none of another node does at the latest after its LocalTTL.
//
// The error joins an [*InvalidationError] for each key that Redis did not confirm.
func (c *Cache[K, V]) Delete(ctx context.Context, keys ...K) error {
	return c.invalidate(ctx, keys, c.node.Delete)
}

// Expire ends the freshness of keys: the next Get serves the stale value, where a stale window
// is set, and has it refreshed. Otherwise it is like Delete.
func (c *Cache[K, V]) Expire(ctx context.Context, keys ...K) error {
	return c.invalidate(ctx, keys, c.node.Expire)
}

// Clear ends everything that is cached under this name, Prefix and Schema at once, however much it is,
// as Delete of all keys would; nothing is scanned. What is running may still answer those who wait for it.
// The entries stay in Redis, unread, until their lifetimes end. So does what Redis remembers of failed loads: a key
// may be left alone for up to ten ErrorBackoff more.
//
// The error is an [*InvalidationError] if Redis did not confirm it.
func (c *Cache[K, V]) Clear(ctx context.Context) error { return c.node.Clear(ctx) }

// InvalidateTag ends all values that carry tag at once, however many they are, as Delete of their keys
// would. Loads that are running and turn out to carry it are kept nowhere, and answer nobody who came after
// this call: on a key that is being loaded he may wait for two loads.
//
// The error is an [*InvalidationError] if Redis did not confirm it.
func (c *Cache[K, V]) InvalidateTag(ctx context.Context, tag string) error {
	return c.endTag(ctx, tag, false)
}

// ExpireTag ends the freshness of all values that carry tag, as Expire of their keys would: they are
// served stale, as far as their windows go, and refreshed when they are asked for. Ending it once more lengthens
// no window, but for a node that reads an entry only after that.
//
// The error is an [*InvalidationError] if Redis did not confirm it.
func (c *Cache[K, V]) ExpireTag(ctx context.Context, tag string) error {
	return c.endTag(ctx, tag, true)
}

func (c *Cache[K, V]) endTag(ctx context.Context, tag string, soft bool) error {
	if err := rebuild.CheckTags([]string{tag}); err != nil {
		return fmt.Errorf("levee: %w", err)
	}
	return c.node.EndTag(ctx, tag, soft)
}

func (c *Cache[K, V]) invalidate(ctx context.Context, keys []K, f func(context.Context, []rebuild.Key) error) error {
	all := make([]rebuild.Key, 0, len(keys))
	var faults []error
	for _, key := range keys {
		k, err := c.key(key)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		all = append(all, k)
	}
	if len(all) > 0 {
		faults = append(faults, f(ctx, all))
	}
	return errors.Join(faults...)
}
