package loader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// Coalesce returns a [Loader] that turns many loads of single keys into few calls of batch:
// the dataloader pattern, for one `WHERE id IN (...)` in place of many queries.
//
// The first key opens a batch, which waits for linger, so that other keys can join it; it
// goes at once when it holds maxBatch keys. Any number of batches may run at the same time.
// With linger zero or less nothing waits, and every key goes at once in a batch of its own.
// With maxBatch zero or less only linger ends a batch. A nil batch gives a nil Loader, which
// cache.New refuses.
//
// batch gets the keys in the order in which they came, each of them once: callers who wait
// for equal keys share the answer. The slice is its own to change. The map that it returns
// holds the value of each key, other keys in it are ignored, and nobody may change it
// afterwards. It may be nil. batch is called in a goroutine of its own and must be safe for
// concurrent use.
//
//   - A key that is not in the map does not exist: its callers get [ErrNotFound].
//   - Errors of single keys are returned as [KeyErrors], beside the values of the others.
//   - Any other error fails every key of the batch, whatever the map holds; so do a panic,
//     as one [*PanicError], and a Goexit, as [ErrGoexit].
//
// The context carries the values of the batch's first caller, has no deadline, and is
// cancelled when all callers have left, with the cause of the last one. A caller whose own
// context ends gets that context's error, and nobody else does; a key that nobody waits for
// any more when its batch goes is left out, and a batch without keys does not go.
//
// In a cache the linger is part of every load: it counts towards LoadTimeout, and each key
// that waits holds one of the MaxConcurrentLoads, so that a batch is never larger than that.
// A key whose LoadTimeout ends while its batch runs counts as abandoned until the batch ends.
// batch must not ask the cache that it loads for: among the keys of a batch only the first
// would be recognised as waiting for itself.
func Coalesce[K comparable, V any](batch func(ctx context.Context, keys []K) (map[K]V, error), maxBatch int, linger time.Duration) Loader[K, V] {
	if batch == nil {
		return nil
	}
	switch {
	case linger <= 0:
		maxBatch = 1
	case maxBatch <= 0:
		maxBatch = math.MaxInt
	}
	return &coalescer[K, V]{query: batch, maxBatch: maxBatch, linger: linger}
}

// KeyErrors is returned by the batch function of [Coalesce], also wrapped, when single keys
// failed: callers of a key that it names get that error, also if there is a value. A nil
// error names nobody, so the zero value says that no key failed.
//
// Only wrapping a KeyErrors alone keeps this meaning. Joined with other errors it is an
// error of the whole batch, since those do not say which keys they are about.
type KeyErrors[K comparable] map[K]error

// Error says how many keys failed. It shows neither keys nor errors: they may be many.
func (e KeyErrors[K]) Error() string {
	n := 0
	for _, err := range e {
		if err != nil {
			n++
		}
	}
	return fmt.Sprintf("loader: failed keys in a batch: %d", n)
}

// keyErrorsIn finds KeyErrors in the chain of err; a joined error ends the chain.
func keyErrorsIn[K comparable](err error) (KeyErrors[K], bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		if e, ok := err.(KeyErrors[K]); ok {
			return e, true
		}
	}
	return nil, false
}

type coalescer[K comparable, V any] struct {
	query    func(context.Context, []K) (map[K]V, error)
	maxBatch int // at least 1
	linger   time.Duration

	mu   sync.Mutex   // guards open, and keys and waiting of its batch; waiting also later
	open *batch[K, V] // the one that lingers; nil: none does
}

// batch is one call of the query, while it gathers keys, while it runs and when it is done.
type batch[K comparable, V any] struct {
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer // nil: it did not linger
	keys    []K         // in order of arrival; the query's own as soon as the batch is not open
	waiting map[K]int   // how many callers wait for a key

	done chan struct{}
	// values, failed and err are written once before done is closed and only read after it.
	values map[K]V
	failed KeyErrors[K]
	err    error // of all keys
}

// Load joins the open batch, or opens one.
func (c *coalescer[K, V]) Load(ctx context.Context, key K) (V, error) {
	var none V
	if err := ctx.Err(); err != nil {
		return none, err
	}
	b := c.join(ctx, key)
	select {
	case <-b.done:
		return b.answer(key)
	case <-ctx.Done():
		running := c.leave(b, key, context.Cause(ctx))
		if left, ok := ctx.Value(leftKey{}).(*sync.WaitGroup); ok && running {
			left.Go(func() { <-b.done })
		}
		return none, ctx.Err()
	}
}

// join changes nothing if the key cannot be hashed, as one of an interface type may not: the
// panic is that of its caller alone.
func (c *coalescer[K, V]) join(ctx context.Context, key K) *batch[K, V] {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.open
	if b == nil {
		b = newBatch[K, V](ctx)
	}
	b.add(key)
	switch {
	case len(b.keys) >= c.maxBatch:
		c.shut(b)
		go c.run(b)
	case c.open == nil:
		c.open = b
		b.timer = time.AfterFunc(c.linger, func() { c.lingered(b) })
	}
	return b
}

func newBatch[K comparable, V any](first context.Context) *batch[K, V] {
	b := &batch[K, V]{waiting: make(map[K]int), done: make(chan struct{})}
	b.ctx, b.cancel = context.WithCancelCause(context.WithoutCancel(first))
	return b
}

func (b *batch[K, V]) add(key K) {
	if b.waiting[key] == 0 {
		b.keys = append(b.keys, key)
	}
	b.waiting[key]++
}

// shut keeps newcomers and the timer off b. The caller holds the mutex.
func (c *coalescer[K, V]) shut(b *batch[K, V]) {
	c.open = nil
	if b.timer != nil {
		b.timer.Stop()
	}
}

// lingered runs b if it is still open: it may have been filled, or left, while the timer fired.
func (c *coalescer[K, V]) lingered(b *batch[K, V]) {
	c.mu.Lock()
	due := c.open == b
	if due {
		c.shut(b)
	}
	c.mu.Unlock()
	if due {
		c.run(b)
	}
}

// leave tells whether the batch is running, or about to.
func (c *coalescer[K, V]) leave(b *batch[K, V], key K, cause error) (running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	running = c.open != b
	if b.waiting[key]--; b.waiting[key] == 0 {
		delete(b.waiting, key)
		if c.open == b {
			b.keys = slices.DeleteFunc(b.keys, func(k K) bool { return k == key })
		}
	}
	if len(b.waiting) > 0 {
		return running
	}
	if c.open == b {
		c.shut(b)
	}
	b.cancel(cause)
	return running
}

// run calls the query and wakes all callers. What it does when the query panics is up to Call.
func (c *coalescer[K, V]) run(b *batch[K, V]) {
	defer b.cancel(nil)
	Call(b.ctx, Func(c.ask), b, nil, func(r Result[map[K]V], err error) {
		b.values, b.err = r.Value, err
		close(b.done)
	})
}

func (c *coalescer[K, V]) ask(ctx context.Context, b *batch[K, V]) (values map[K]V, err error) {
	values, err = c.query(ctx, b.keys)
	if failed, ok := keyErrorsIn[K](err); ok {
		b.failed, err = failed, nil
	}
	return values, err
}

// answer is what came for one key.
func (b *batch[K, V]) answer(key K) (value V, err error) {
	if b.err != nil {
		return value, b.err
	}
	if err := b.failed[key]; err != nil {
		return value, harmless(err)
	}
	value, found := b.values[key]
	if !found {
		return value, ErrNotFound
	}
	return value, nil
}
