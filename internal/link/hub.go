package link

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Hub wakes whoever listens to a channel when something is published there. All listeners
// of a client share one connection outside its pool; channels are added and dropped on
// demand. A message can be lost (pub/sub promises nothing), so a listener is a way to be
// fast, never the only way to make progress.
type Hub struct {
	open    func(context.Context) *redis.PubSub
	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex // guards what follows; never held during I/O
	stations map[string]*station
	dropped  []string      // channels to unsubscribe from
	changed  chan struct{} // nil until the first Listen and after close
}

// station is one channel and who listens to it.
type station struct {
	listeners  map[*Listener]struct{}
	asked      bool // SUBSCRIBE is on its way
	subscribed bool // the server has confirmed it at least once
}

// Listener hears of one channel. C has a token after each message, and after each time the
// server confirmed the subscription, the first one and those after a reconnect: in the gap
// before it a message may have been missed, so look again.
type Listener struct {
	C       <-chan struct{}
	wake    chan struct{}
	hear    func(News) // instead of C, by Hear
	hub     *Hub
	channel string
}

// News is what a channel brings: a message, or that the server has confirmed the subscription.
type News struct {
	Message   string
	Confirmed bool
}

const (
	hubPatience    = 250 * time.Millisecond // how long close waits for a hub whose client is stuck in a dial
	subscribePause = 100 * time.Millisecond // before a failed SUBSCRIBE is made again
)

func newHub(open func(context.Context) *redis.PubSub) *Hub {
	return &Hub{open: open, stations: map[string]*station{}}
}

// Listen subscribes to channel without waiting for the server.
func (h *Hub) Listen(channel string) *Listener {
	wake := make(chan struct{}, 1)
	return h.listen(&Listener{C: wake, wake: wake, hub: h, channel: channel})
}

// Hear subscribes to channel for those who want to know what was published. The function is called from
// the hub's goroutine, which it must not keep, and once more at most after Close.
func (h *Hub) Hear(channel string, hear func(News)) *Listener {
	return h.listen(&Listener{hear: hear, hub: h, channel: channel})
}

func (h *Hub) listen(l *Listener) *Listener {
	channel := l.channel
	h.mu.Lock()
	defer h.mu.Unlock()
	h.startLocked()
	s := h.stations[channel]
	if s == nil {
		s = &station{listeners: map[*Listener]struct{}{}}
		h.stations[channel] = s
	}
	s.listeners[l] = struct{}{}
	if s.subscribed {
		l.notify()
	}
	h.changedLocked()
	return l
}

// Close ends the listening. The last listener of a channel drops it.
func (l *Listener) Close() {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stations[l.channel]
	if s == nil {
		return
	}
	delete(s.listeners, l)
	if len(s.listeners) > 0 {
		return
	}
	delete(h.stations, l.channel)
	if s.asked {
		h.dropped = append(h.dropped, l.channel)
		h.changedLocked()
	}
}

func (l *Listener) notify() {
	if l.wake == nil {
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// startLocked opens the connection with the first listener.
func (h *Hub) startLocked() {
	if h.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop, h.changed = stop, make(chan struct{}, 1)
	h.running.Go(func() { h.run(ctx, h.open(ctx)) })
}

func (h *Hub) changedLocked() {
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

// run owns the connection: one goroutine brings the subscriptions up to date, this one
// passes on what comes in.
func (h *Hub) run(ctx context.Context, ps *redis.PubSub) {
	heard := ps.ChannelWithSubscriptions()
	h.running.Go(func() { h.follow(ctx, ps) })
	context.AfterFunc(ctx, func() { _ = ps.Close() })
	for event := range heard {
		switch e := event.(type) {
		case *redis.Subscription:
			if e.Kind == "subscribe" {
				h.wake(e.Channel, News{Confirmed: true})
			}
		case *redis.Message:
			h.wake(e.Channel, News{Message: e.Payload})
		}
	}
}

func (h *Hub) wake(channel string, news News) {
	for _, l := range h.reach(channel, news.Confirmed) {
		l.hear(news)
	}
}

// reach wakes who listens, and returns who wants to hear more than that.
func (h *Hub) reach(channel string, confirmed bool) (hearers []*Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stations[channel]
	if s == nil {
		return nil
	}
	s.subscribed = s.subscribed || confirmed
	for l := range s.listeners {
		l.notify()
		if l.hear != nil {
			hearers = append(hearers, l)
		}
	}
	return hearers
}

// follow sends the changes of the subscriptions, in the order in which they were made. A
// SUBSCRIBE that failed is made again after a pause: where go-redis has reconnected meanwhile,
// it did so without the new channels. A failed UNSUBSCRIBE costs a message nobody listens to.
func (h *Hub) follow(ctx context.Context, ps *redis.PubSub) {
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.changed:
		case <-again.C:
		}
		drop, add := h.changes()
		if len(drop) > 0 {
			_ = ps.Unsubscribe(ctx, drop...)
		}
		if len(add) > 0 && ps.Subscribe(ctx, add...) != nil {
			h.unasked(add)
			again.Reset(subscribePause)
		}
	}
}

// unasked notes that the channels are still to be subscribed to.
func (h *Hub) unasked(channels []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range channels {
		if s := h.stations[c]; s != nil {
			s.asked = false
		}
	}
}

func (h *Hub) changes() (drop, add []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	drop, h.dropped = h.dropped, nil
	for channel, s := range h.stations {
		if !s.asked {
			s.asked = true
			add = append(add, channel)
		}
	}
	return drop, add
}

// close ends the hub's goroutines, or leaves them to the client's own timeouts where they
// are stuck in it.
func (h *Hub) close() {
	h.mu.Lock()
	stop := h.stop
	h.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	waitFor(&h.running, hubPatience)
}
