package lock

import (
	"context"
	"errors"
	"time"

	"github.com/levee-cache/levee/internal/link"
)

// Lock takes the lock called name, and waits for it as long as the context and [WithWait] allow. Waiters are served in the
// order in which their processes came, and within one in the order of the calls. The context bounds the wait
// only; the lease goes on without it. Beside the context's error it returns an [ErrWaitTimeout], [ErrUnavailable],
// [ErrConflict] or [ErrClosed], and [ErrBusy] with WithWait(0), which makes it a TryLock.
func (k *Locker) Lock(ctx context.Context, name string, options ...LockOption) (*Lease, error) {
	s, err := k.begin(ctx, name, options)
	if err != nil {
		return nil, err
	}
	defer k.life.leave()
	if s.wait == 0 {
		return k.try(ctx, name, s)
	}
	return k.wait(ctx, name, s)
}

// TryLock takes the lock called name if it is free, and does not wait for it: one round trip. It does not overtake those who
// wait. It returns an [ErrBusy], which says who has it, [ErrUnavailable], [ErrConflict], [ErrClosed], or the
// context's error.
func (k *Locker) TryLock(ctx context.Context, name string, options ...LockOption) (*Lease, error) {
	s, err := k.begin(ctx, name, options)
	if err != nil {
		return nil, err
	}
	defer k.life.leave()
	return k.try(ctx, name, s)
}

func (k *Locker) try(ctx context.Context, name string, s *settings) (*Lease, error) {
	if l := k.again(ctx, name, s); l != nil {
		return l, nil
	}
	began := k.link.Clock.Now()
	w := asking{name: name, key: k.key(name), attempt: newAttempt(), settings: s, inbox: noToken}
	a, err := k.acquire(ctx, w)
	switch {
	case err != nil:
		return nil, k.failed(ctx, w, began, err)
	case a.status == statusAcquired:
		return k.acquired(ctx, w, began, granted{fence: a.int(0), sent: a.sent}, a).lease(), nil
	case a.status == statusDone:
		return nil, k.repeated(w, began, a)
	}
	if w.doubtful() { // go-redis has sent it twice
		k.abandon(name, w.attempt)
	}
	busy := a.busy(name)
	k.tell(Event{Kind: Refused, Name: name, Key: w.key, Token: w.token, Fence: busy.Fence, Holder: busy.Holder, Wait: k.since(began), Err: busy})
	return nil, busy
}

func (k *Locker) since(i link.Instant) time.Duration { return time.Duration(k.link.Clock.Now() - i) }

// acquired keeps what was granted, and tells of it. The answer is zero if a message told.
func (k *Locker) acquired(ctx context.Context, w asking, began link.Instant, g granted, a answer) *hold {
	h := k.hold(ctx, w, g)
	k.noteEviction(w.key)
	k.tell(Event{Kind: Acquired, Name: w.name, Key: w.key, Token: w.token, Fence: g.fence, Wait: k.since(began)})
	if a.int(2) == 1 {
		k.tell(Event{Kind: HolderLost, Name: w.name, Key: w.key, Token: w.token, Fence: g.fence, Holder: readHolder(a.text(3))})
	}
	return h
}

// failed ends an attempt that came to nothing. What may be left of it is removed; the caller's own
// end comes before what it led to.
func (k *Locker) failed(ctx context.Context, w asking, began link.Instant, err error) error {
	if w.alive > 0 || w.doubtful() {
		k.abandon(w.name, w.attempt)
	}
	switch {
	case ctx.Err() != nil && (errors.Is(err, ErrUnavailable) || errors.Is(err, ctx.Err())):
		err = leaving(ctx, w.name)
	case k.life.ctx.Err() != nil:
		err = ErrClosed
	}
	k.tell(Event{Kind: Failed, Name: w.name, Key: w.key, Token: w.token, Wait: k.since(began), Err: err})
	return err
}

// busy reads who has the lock.
func (a answer) busy(name string) *BusyError {
	held := time.Duration(a.micros/1000-a.int(4)) * time.Millisecond
	return &BusyError{Name: name, Remaining: a.duration(0), Waiting: int(a.int(2)), Fence: a.int(3),
		Held: max(held, 0), Holder: readHolder(a.text(5))}
}
