package link

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// watcher tracks the keys of one master, as long as it is one.
type watcher struct {
	tracking *Tracking
	clock    *Clock
	options  *redis.Options // the user's
	stop     context.CancelFunc
	first    chan error // of the first attempt: nil unless the server refused
	outage   outage

	trust Trust // guarded by tracking.mu
}

func newWatcher(t *Tracking, o *redis.Options, stop context.CancelFunc) *watcher {
	return &watcher{
		tracking: t, clock: t.link.Clock, options: o, stop: stop, first: make(chan error, 1),
		outage: outage{what: "changes of keys", log: t.log},
	}
}

func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.session(ctx)
		if ctx.Err() != nil {
			return
		}
		w.tracking.link.lookAgain(ctx)
		rest(ctx, w.outage.goesOn(err, w.tracking.Hears(w.clock.Now())))
	}
}

// session tracks until something breaks. What was asked for before it began, or lies in the time
// after it, is in doubt.
func (w *watcher) session(ctx context.Context) error {
	p, err := w.open(ctx)
	w.answered(err)
	if err != nil {
		return err
	}
	defer p.close()
	w.distrust()
	p.running.Go(func() { w.hear(ctx, p) })
	err = w.beats(ctx, p)
	w.trusting((*Trust).forget) // changes from now on are lost, so nobody need wait for the silence
	w.distrust()
	return err
}

// answered passes on what came of the first attempt.
func (w *watcher) answered(err error) {
	if !refusal(err) {
		err = nil
	}
	select {
	case w.first <- err:
	default:
	}
}

// refusal tells a server's "no" from silence, and from what passes.
func refusal(err error) bool {
	return err != nil && answered(err) && !slices.ContainsFunc(
		[]string{"LOADING", "BUSY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN", "READONLY", "max number of clients"},
		func(prefix string) bool { return redis.HasErrorPrefix(err, prefix) })
}

// distrust notes that what was asked for until now may have changed unheard.
func (w *watcher) distrust() {
	w.trusting(func(t *Trust) { t.raise(w.clock.Now()) })
}

func (w *watcher) trusting(f func(*Trust)) {
	w.tracking.mu.Lock()
	defer w.tracking.mu.Unlock()
	f(&w.trust)
	w.tracking.joinLocked()
}

// beats asks both connections for a sign of life, twice a second.
func (w *watcher) beats(ctx context.Context, p *pair) error {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-p.broken:
			return err
		case <-next.C:
		}
		sent := w.clock.Now()
		if err := p.beat(ctx); err != nil {
			return err
		}
		w.trusting(func(t *Trust) { t.prove(sent) })
		w.outage.over()
		next.Reset(w.clock.Until(sent.Add(blockTime)))
	}
}

// pair is two connections to one master. Tracking is on for one, which does nothing else; what
// it would be told is redirected to the other, which works with RESP2 too.
type pair struct {
	holder   *ownConn
	listener *ownConn
	changes  *redis.PubSub
	pongs    chan struct{}
	broken   chan error
	running  sync.WaitGroup
}

// invalidations is the channel that the server publishes changes in, to the listener only.
const invalidations = "__redis__:invalidate"

var errNoBeat = errors.New("the server did not answer a ping in time")

// open makes both connections and turns tracking on.
func (w *watcher) open(ctx context.Context) (p *pair, err error) {
	p = &pair{pongs: make(chan struct{}, 1), broken: make(chan error, 1)}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	id, err := w.listen(ctx, p)
	if err != nil {
		return p, err
	}
	p.holder, err = w.tracking.link.dialOwn(ctx, w.tracking.link.private(*w.options))
	if err != nil {
		return p, err
	}
	args := []any{"client", "tracking", "on", "redirect", id, "bcast"}
	for _, prefix := range w.tracking.tracker.Prefixes {
		args = append(args, "prefix", prefix)
	}
	_, err = ask(ctx, p.holder, openPatience, func(ctx context.Context, c *redis.Conn) (any, error) {
		return c.Do(ctx, args...).Result()
	})
	return p, err
}

// listen subscribes to the changes and returns the number of the connection.
func (w *watcher) listen(ctx context.Context, p *pair) (id int64, err error) {
	o := w.tracking.link.private(*w.options)
	next := o.OnConnect
	o.OnConnect = func(ctx context.Context, c *redis.Conn) (err error) {
		if next != nil {
			if err := next(ctx, c); err != nil {
				return err
			}
		}
		id, err = c.ClientID(ctx).Result()
		return err
	}
	if p.listener, err = w.tracking.link.dialOwn(ctx, o); err != nil {
		return 0, err
	}
	p.changes = p.listener.client.Subscribe(ctx)
	_, err = ask(ctx, p.listener, openPatience, func(ctx context.Context, _ *redis.Conn) (any, error) {
		if err := p.changes.Subscribe(ctx, invalidations); err != nil {
			return nil, err
		}
		return p.changes.Receive(ctx) // the confirmation, or the refusal
	})
	return id, err
}

// hear passes on changes until the connection breaks.
func (w *watcher) hear(ctx context.Context, p *pair) {
	for {
		event, err := recovered(ctx, p.changes.Receive)
		switch {
		case flushed(err):
			w.distrust()
			continue
		case err != nil:
			p.broken <- err
			return
		}
		switch e := event.(type) {
		case *redis.Pong:
			select {
			case p.pongs <- struct{}{}:
			default:
			}
		case *redis.Message:
			if e.Channel == invalidations && len(e.PayloadSlice) > 0 {
				w.tracking.receive(e.PayloadSlice)
			}
		}
	}
}

// flushed recognises what go-redis makes of the message without keys that a flushed database sends.
// If it were not recognised the session would end, and everything be in doubt as well.
func flushed(err error) bool {
	return err != nil && strings.HasSuffix(err.Error(), "unsupported pubsub message payload: <nil>")
}

// beat pings the listener, then the holder. The answers prove that changes made before were heard:
// the first comes behind them, and the second says that tracking was still on.
func (p *pair) beat(ctx context.Context) error {
	late, cancel := context.WithTimeout(ctx, slack)
	defer cancel()
	if err := p.changes.Ping(late); err != nil {
		return err
	}
	select {
	case <-p.pongs:
	case err := <-p.broken:
		return err
	case <-late.Done():
		return errNoBeat
	}
	_, err := ask(late, p.holder, slack, func(ctx context.Context, c *redis.Conn) (string, error) {
		return c.Ping(ctx).Result()
	})
	return err
}

func (p *pair) close() {
	if p.changes != nil {
		_ = p.changes.Close()
	}
	for _, c := range []*ownConn{p.listener, p.holder} {
		if c != nil {
			c.close()
		}
	}
	p.running.Wait()
}
