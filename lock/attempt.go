package lock

import (
	"context"
	"sync/atomic"

	"github.com/levee-cache/levee/internal/link"
)

// attempt is a token on its way to Redis. go-redis marshals an argument each time it writes a
// command, so the count tells whether the client has sent more than was answered: then a
// command may still be in the network, and land late.
type attempt struct {
	token    string
	sent     atomic.Int32
	answered atomic.Int32
	silent   atomic.Bool  // a call was given up on
	refused  atomic.Int64 // an [link.Instant]: by then Redis refuses what was sent
}

func newAttempt() *attempt { return &attempt{token: NewToken()} }

// MarshalBinary gives the token to the client.
func (a *attempt) MarshalBinary() ([]byte, error) {
	a.sent.Add(1)
	return []byte(a.token), nil
}

// String is for those who print commands, such as tracing: else they would read the counts while these are written.
func (a *attempt) String() string { return a.token }

// Refused takes back one that the server has answered without having done anything.
func (a *attempt) Refused() { a.sent.Add(-1) }

// came notes how a call of Redis has ended.
func (a *attempt) came(err error) {
	switch {
	case definite(err):
		a.answered.Add(1)
	case !link.NotSent(err):
		a.silent.Store(true)
	}
}

// doubtful tells whether something may still land.
func (a *attempt) doubtful() bool { return a.silent.Load() || a.sent.Load() > a.answered.Load() }

// wanted says until which time of the server a command sent now is wanted.
func (k *Locker) wanted(ctx context.Context, b *link.Budget, key string, a *attempt) (micros int64, err error) {
	micros, err = k.notAfter(ctx, b, key)
	if err != nil {
		return 0, kindOf(key, err)
	}
	_, refused, ok := k.link.Clock.Span(k.link.Master(ctx, key), micros+1)
	if !ok {
		refused = k.link.Clock.Now().Add(2 * k.config.timeout)
	}
	a.refused.Store(int64(refused))
	return micros, nil
}

// notAfter is the server's time after which a command sent now is no longer wanted.
func (k *Locker) notAfter(ctx context.Context, b *link.Budget, key string) (micros int64, err error) {
	clock, master := k.link.Clock, k.link.Master(ctx, key)
	now, ok := clock.ServerMicros(master, clock.Now())
	if ok {
		return now + b.Left.Microseconds(), nil
	}
	now, err = link.Call(ctx, k.link, b, link.Spared, func(ctx context.Context) (int64, error) {
		sent := clock.Now()
		t, err := k.link.TimeOf(ctx, key)
		if err == nil {
			k.observe(ctx, key, sent, t.UnixMicro())
		}
		return t.UnixMicro(), err
	})
	return now + b.Left.Microseconds(), err
}

// abandon removes what an attempt may have left in Redis, or may still leave there, behind the caller's
// back: once now, and if a command may still land, once more when Redis will refuse it. After
// that no acquire of the token can execute.
func (k *Locker) abandon(name string, a *attempt) {
	key := k.key(name)
	k.tell(Event{Kind: Abandoned, Name: name, Key: key, Token: a.token})
	k.life.behind(func() {
		ctx := context.Background()
		_, err := k.release(ctx, key, a.token)
		if a.doubtful() || err != nil {
			k.releaseLate(ctx, key, a)
		}
	})
}

// releaseLate releases once Redis refuses what is on its way.
func (k *Locker) releaseLate(ctx context.Context, key string, a *attempt) {
	k.link.Clock.SleepUntil(link.Instant(a.refused.Load()))
	for range 3 { // Redis may be away still; the lease is the bound then
		if _, err := k.release(ctx, key, a.token); err == nil || k.life.sleep(k.config.timeout) {
			return
		}
	}
}
