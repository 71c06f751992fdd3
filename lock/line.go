package lock

import (
	"context"
	"slices"
	"sync"
)

// lines are where the callers of this process wait for each other, one a name, first come first served. Only
// the head of a line talks to Redis.
type lines struct {
	mu    sync.Mutex // guards at
	at    map[string]*line
	spare *line // the last one that was left empty
}

// line is one of them. Who is not in waiting is the head.
type line struct {
	waiting []chan struct{} // closed when it is the turn of its owner
}

// enter returns when the caller is the head of the line, which he must leave.
func (l *lines) enter(ctx context.Context, closed <-chan struct{}, name string) (err error) {
	turn := l.join(name)
	if turn == nil {
		return nil
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-closed:
		err = ErrClosed
	}
	l.quit(name, turn)
	return err
}

// join puts the caller at the end of the line; nil if he is its head already.
func (l *lines) join(name string) (turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.at[name]
	if at == nil {
		l.openLocked(name)
		return nil
	}
	turn = make(chan struct{})
	at.waiting = append(at.waiting, turn)
	return turn
}

func (l *lines) openLocked(name string) {
	if l.at == nil {
		l.at = map[string]*line{}
	}
	at := l.spare
	if at == nil {
		at = &line{}
	}
	l.at[name], l.spare = at, nil
}

// quit takes one out who has not waited to the end; if it has become his turn meanwhile, he leaves as head.
func (l *lines) quit(name string, turn chan struct{}) {
	l.mu.Lock()
	at := l.at[name]
	i := slices.Index(at.waiting, turn)
	if i >= 0 {
		at.waiting = slices.Delete(at.waiting, i, i+1)
	}
	l.mu.Unlock()
	if i < 0 {
		l.leave(name)
	}
}

// leave makes the next one the head.
func (l *lines) leave(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.at[name]
	if len(at.waiting) == 0 {
		delete(l.at, name)
		l.spare = at
		return
	}
	close(at.waiting[0])
	at.waiting = slices.Delete(at.waiting, 0, 1)
}
