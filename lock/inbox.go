package lock

import (
	"strconv"
	"sync"

	"github.com/levee-cache/levee/internal/link"
)

// inbox is the channel on which a Locker is told that a lock was granted to one of its waiters: one channel for
// all of them, opened by the first who has to wait. A message can be lost, so whoever waits asks now and then.
type inbox struct {
	locker *Locker

	mu        sync.Mutex // guards what follows
	id        string     // of the channel
	ears      *link.Listener
	confirmed bool // nobody is told to write to it before
	waiters   map[string]*waiter
}

// message is that a lock was granted.
type message struct {
	token string
	fence int64
	until int64 // server ms
}

const (
	fenceAt = TokenSize
	untilAt = fenceAt + 13
	keyAt   = untilAt + 11
)

func readMessage(text string) (m message, ok bool) {
	if len(text) < keyAt {
		return m, false
	}
	fence, err1 := strconv.ParseInt(text[fenceAt:untilAt], 16, 64)
	until, err2 := strconv.ParseInt(text[untilAt:keyAt], 16, 64)
	return message{text[:TokenSize], fence, until}, err1 == nil && err2 == nil
}

// join listens for what is granted to w. The inbox may have opened since w has looked.
func (i *inbox) join(w *waiter) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ears == nil {
		i.id, i.waiters = NewToken(), map[string]*waiter{}
		i.ears = i.locker.link.Hub.Hear(i.locker.config.prefix+"in:"+i.id, i.hear)
	}
	i.waiters[w.token] = w
	if i.confirmed && w.inbox == noToken {
		w.poke()
	}
}

// look returns what has come for w, and the name of the inbox.
func (i *inbox) look(w *waiter) (m message, name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m, w.letter = w.letter, message{}
	return m, i.nameLocked()
}

func (i *inbox) leave(w *waiter) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.waiters, w.token)
}

// name is what is written into the queue.
func (i *inbox) name() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.nameLocked()
}

func (i *inbox) nameLocked() string {
	if !i.confirmed {
		return noToken
	}
	return i.id
}

// hear passes on a grant. When the subscription was made, and made again after the connection was lost, everybody asks
// how things stand, and the leases are looked after.
func (i *inbox) hear(n link.News) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if n.Confirmed {
		again := i.confirmed
		i.confirmed = true
		for _, w := range i.waiters {
			w.poke()
		}
		if again {
			i.locker.link.Leases.Hurry()
		}
		return
	}
	m, ok := readMessage(n.Message)
	if w := i.waiters[m.token]; ok && w != nil {
		w.letter = m
		w.poke()
	}
}

func (i *inbox) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.ears != nil {
		i.ears.Close()
	}
}
