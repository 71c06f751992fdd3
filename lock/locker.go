package lock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
)

// Locker takes locks in one Redis: a single server, one behind Sentinel, or a cluster. All methods are
// safe for concurrent use. Make one per client and keep it; it costs nothing until it is used.
type Locker struct {
	link    *link.Link
	config  *config
	inboxes any // what the names of inboxes begin with, as an argument
	counted any // whether PUBLISH counts every subscriber, as an argument
	life    *life
	lines   lines
	inbox   inbox
	asked   atomic.Bool // whether the server evicts

	mu    sync.Mutex // guards holds
	holds map[string]*hold
}

// New returns a Locker. It sends nothing to Redis yet, and never closes the client. A [redis.Ring] is refused:
// it moves keys to other servers when one is away, so two nodes could have the same lock. All faults
// of the options come in one error.
func New(client redis.UniversalClient, options ...Option) (*Locker, error) {
	c, err := newConfig(options)
	if err := errors.Join(err, unless(!c.once(), "WithWindow: only a Once has one")); err != nil {
		return nil, err
	}
	return open(client, c)
}

func open(client redis.UniversalClient, c *config) (*Locker, error) {
	l, err := link.Open(client)
	if err != nil {
		return nil, err
	}
	k := &Locker{link: l, config: c, life: newLife(), holds: map[string]*hold{}}
	k.inboxes, k.counted = c.prefix+"in:", flag(l.CountsReceivers())
	k.inbox.locker = k
	return k, nil
}

// key is where a lock lives in Redis.
func (k *Locker) key(name string) string { return k.config.prefix + name }

// begin checks what a call begins with, and counts it as work until leave.
func (k *Locker) begin(ctx context.Context, name string, options []LockOption) (*settings, error) {
	s, err := k.config.settings.with(options)
	if err != nil {
		return nil, err
	}
	if err := checkName(name); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, leaving(ctx, name)
	}
	if !k.life.enter() {
		return nil, ErrClosed
	}
	return s, nil
}

// Close makes waiting callers return [ErrClosed], ends the leases with it and gives them back, and returns when
// nothing of the Locker runs any more. It takes a second or two where Redis does not answer. It may
// be called again.
func (k *Locker) Close() error {
	if !k.life.end() {
		k.life.work.Wait()
		return nil
	}
	k.inbox.close()
	if !k.config.once() { // what that runs is its work, which comes to an end
		k.finishAll()
	}
	k.life.work.Wait()
	k.finishAll() // of callers who were about to return
	k.link.Close()
	return nil
}

func (k *Locker) finishAll() {
	var all sync.WaitGroup
	for _, h := range k.held() {
		all.Go(func() { h.finish(context.Background(), ErrClosed) })
	}
	all.Wait()
}

// held are the holds that there are.
func (k *Locker) held() (all []*hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.holds {
		all = append(all, h)
	}
	return all
}

func (k *Locker) add(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holds[h.Token] = h
}

func (k *Locker) remove(h *hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.holds, h.Token)
}
