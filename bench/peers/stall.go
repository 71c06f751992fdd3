package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// cancelLatency is P10: Redis says nothing, and the caller does not want to wait any more.
func cancelLatency(s *stage) []row {
	r := row{figure: "return after cancel, Redis stalled, p99", bar: "≤ 10 ms", values: map[string]string{}}
	slowest := s.forEach(pick(s, peers[:1], peers), func(p peer) time.Duration {
		if p.name == levee.name {
			return s.cancelled(p, pick(s, 20, 60))
		}
		return s.cancelled(p, 3)
	})
	for name, d := range slowest {
		r.values[name] = brief(d)
	}
	ours := slowest[levee.name]
	r.verdict, r.broken = s.judgeSpeed(ours <= 10*time.Millisecond), gate(ours <= 200*time.Millisecond, "%v", ours)
	return []row{r}
}

// forEach takes a figure of all these peers at once.
func (s *stage) forEach(which []peer, f func(peer) time.Duration) map[string]time.Duration {
	type figure struct {
		name string
		d    time.Duration
	}
	taken := make(chan figure, len(which))
	s.atOnce(which, func(p peer) { taken <- figure{p.name, f(p)} })
	close(taken)
	all := map[string]time.Duration{}
	for one := range taken {
		all[one.name] = one.d
	}
	return all
}

// cancelled is how long after its context was cancelled a caller gets to hear of it. Each caller of a rival finds a
// new client: one that is stuck must not make the next ones wait.
func (s *stage) cancelled(p peer, rounds int) time.Duration {
	srv, _ := s.server()
	var all []time.Duration
	var k locker
	var proxy *redistest.Proxy
	for i := range rounds {
		if i == 0 || p.name != levee.name {
			proxy = redistest.NewProxy(s, srv.Addr())
			k = s.open(p, opening{addr: proxy.Addr()})
			s.cycle(k, "x")
			proxy.BlackHole(true)
		}
		ctx, cancel := context.WithCancel(s.Context())
		returned := make(chan error, 1)
		go func() {
			_, err := k.lock(ctx, fmt.Sprint("x-", i))
			returned <- err
		}()
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		cancel()
		err := <-returned
		all = append(all, time.Since(began))
		if p.name == levee.name && !errors.Is(err, context.Canceled) {
			s.Fatalf("a cancelled caller was told %v", err)
		}
	}
	return at(all, 0.99)
}

// ghosts is P11: the network holds an acquire back, its caller gives up, and then it arrives. For how long does it keep
// the lock from others?
func ghosts(s *stage) []row {
	r := row{figure: "lock left behind by a caller that gave up after 200 ms, its packet arriving at 300 ms, at 1.2 s", bar: "≤ 500 ms + 1 RTT", values: map[string]string{}}
	after := []time.Duration{300 * time.Millisecond, 1200 * time.Millisecond}
	var worst time.Duration
	for i, stall := range after {
		lives := s.forEach(peers, func(p peer) time.Duration { return s.ghost(p, stall) })
		for name, d := range lives {
			if i > 0 {
				r.values[name] += ", "
			}
			r.values[name] += brief(d)
		}
		worst = max(worst, lives[levee.name])
	}
	r.verdict, r.broken = judge(worst <= 520*time.Millisecond), gate(worst <= time.Second, "%v", worst)
	return []row{r}
}

// ghost is for how long the lock was taken. Sockets keep the context's deadline: else callers of go-redis do not even
// get to give up.
func (s *stage) ghost(p peer, stall time.Duration) time.Duration {
	srv, c := s.server()
	proxy := redistest.NewProxy(s, srv.Addr())
	k := s.open(p, opening{addr: proxy.Addr(), lease: pick(s, time.Second, 0), deadline: true})
	s.cycle(k, "warm-up")
	other := s.open(p, opening{addr: srv.Addr()})
	name := "ghost"
	held := proxy.Hold(name)
	ctx, cancel := context.WithTimeout(s.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := k.try(ctx, name); err == nil {
		s.Fatalf("%s: the lock was had over a network that is stalled", p.name)
	}
	time.Sleep(stall - time.Since(began))
	s.must(held.Release(s.Context()))
	arrived := time.Now()
	for s.taken(c, p, other, name) {
		time.Sleep(5 * time.Millisecond)
	}
	if life := time.Since(arrived); life > 5*time.Millisecond {
		return life
	}
	return 0
}

// taken tells whether somebody has the lock, without being in the way: by the key of those that have a key only then.
func (s *stage) taken(c *redis.Client, p peer, other locker, name string) bool {
	if p.key != nil {
		n, err := c.Exists(s.Context(), p.key(name)).Result()
		s.must(err)
		return n == 1
	}
	state, err := other.(leveeLocker).Inspect(s.Context(), name)
	s.must(err)
	return state.Held
}
