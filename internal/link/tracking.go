package link

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Tracker is told of every change of keys, whoever makes it.
type Tracker struct {
	// Prefixes are those of the keys; none may begin with another.
	Prefixes []string
	// Receive is called with keys that were written, deleted, evicted or have expired, by one
	// goroutine at a time and in the order of their master. It must not block, nor close the Tracking. If
	// it returns false, it cannot tell what they are about, and all that was asked for before is distrusted.
	Receive func(keys []string) (known bool)
	Logger  *slog.Logger // hears when changes cannot be received; nil: silent
}

// Tracking has the server report changes of keys ("CLIENT TRACKING" in broadcast mode, Redis 6.0 or
// later) over two connections of its own to each master. Every change reaches every node that
// tracks. Its Trust covers what was asked for in Redis while all masters were heard; a lost
// connection or a flushed database raises the floor. All methods are safe for concurrent use.
type Tracking struct {
	Trust
	link    *Link
	tracker Tracker
	stop    context.CancelFunc
	running sync.WaitGroup

	receiving sync.Mutex // held while Receive runs

	mu      sync.Mutex          // guards what follows, and all writing of Trusts
	masters map[string]*watcher // by address
}

// surveyEvery is how often a cluster is asked for its masters: a new one is tracked by then.
const surveyEvery = 5 * time.Second

// Track begins to track and waits, as long as ctx allows, for the first answer of each master. It
// fails if the client shows no options, or a master refuses: it does not know tracking, or the
// user lacks a right. A server that does not answer is no error: Track keeps trying until Close.
func (l *Link) Track(ctx context.Context, tracker Tracker) (*Tracking, error) {
	switch {
	case !l.hasOwn():
		return nil, errHidden
	case len(tracker.Prefixes) == 0:
		return nil, errors.New("there are no prefixes of keys to track")
	}
	run, stop := context.WithCancel(context.Background())
	t := &Tracking{link: l, tracker: tracker, stop: stop, masters: map[string]*watcher{}}
	if err := t.begin(ctx, run); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// begin starts a watcher for each master, and what looks for other masters later.
func (t *Tracking) begin(ctx, run context.Context) error {
	if t.link.cluster == nil {
		t.watch(run, map[string]*redis.Options{"": t.link.options})
		return t.refused(ctx)
	}
	if masters, err := t.link.mastersOptions(ctx); err == nil {
		t.watch(run, masters)
	}
	t.running.Go(func() { t.survey(run) })
	return t.refused(ctx)
}

// refused waits for the first answers and returns the first refusal.
func (t *Tracking) refused(ctx context.Context) error {
	t.mu.Lock()
	var all []*watcher
	for _, w := range t.masters {
		all = append(all, w)
	}
	t.mu.Unlock()
	for _, w := range all {
		select {
		case err := <-w.first:
			if err != nil {
				return fmt.Errorf("the server does not let this client track keys: %w", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// survey follows the masters of a cluster.
func (t *Tracking) survey(ctx context.Context) {
	tick := time.NewTicker(surveyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if masters, err := t.link.mastersOptions(ctx); err == nil {
			t.watch(ctx, masters)
		}
	}
}

// watch starts watchers for masters that have none and ends those of others.
func (t *Tracking) watch(ctx context.Context, masters map[string]*redis.Options) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for addr, w := range t.masters {
		if masters[addr] == nil {
			w.stop()
			delete(t.masters, addr)
		}
	}
	for addr, o := range masters {
		if t.masters[addr] == nil {
			run, stop := context.WithCancel(ctx)
			w := newWatcher(t, o, stop)
			t.masters[addr] = w
			t.running.Go(func() { w.run(run) })
		}
	}
	t.joinLocked()
}

// joinLocked makes the Trust that of all masters together: a change may be made on any.
func (t *Tracking) joinLocked() {
	floor, until := Instant(0), Instant(math.MaxInt64)
	for _, w := range t.masters {
		floor, until = max(floor, w.trust.Floor()), min(until, Instant(w.trust.until.Load()))
	}
	if len(t.masters) == 0 {
		until = 0
	}
	t.raise(floor)
	t.until.Store(int64(until))
}

func (t *Tracking) receive(keys []string) {
	t.receiving.Lock()
	defer t.receiving.Unlock()
	if !t.tracker.Receive(keys) {
		t.raise(t.link.Clock.Now())
	}
}

func (t *Tracking) log(level slog.Level, text string, err error) {
	if t.tracker.Logger == nil {
		return
	}
	l := t.tracker.Logger
	if err != nil {
		l = l.With("error", err)
	}
	l.Log(context.Background(), level, text)
}

// Close ends the tracking and may be called twice. Nothing is received after it has returned, and
// nothing is left of it but what is stuck in the client's dialer: that ends with the
// dialer's timeout.
func (t *Tracking) Close() {
	t.stop()
	waitFor(&t.running, streamPatience)
}

// mastersOptions are the options of each master of a cluster, by address.
func (l *Link) mastersOptions(ctx context.Context) (map[string]*redis.Options, error) {
	c, ok := l.cluster.(interface {
		ForEachMaster(context.Context, func(context.Context, *redis.Client) error) error
	})
	if !ok {
		return nil, errHidden
	}
	return bounded(ctx, l, openPatience, func(ctx context.Context) (map[string]*redis.Options, error) {
		var mu sync.Mutex // guards all
		all := map[string]*redis.Options{}
		err := c.ForEachMaster(ctx, func(_ context.Context, m *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			all[m.Options().Addr] = m.Options()
			return nil
		})
		return all, err
	})
}
