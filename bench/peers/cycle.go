package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// commandsPerCycle is P1: what a lock that nobody else wants costs, and asking for one in vain.
func commandsPerCycle(s *stage) []row {
	srv, direct := s.server()
	cycles := row{figure: "commands, Lock and Unlock uncontended", bar: "exactly 2", values: map[string]string{}}
	busy := row{figure: "commands, TryLock in vain", bar: "exactly 1", values: map[string]string{}}
	var ours, vain float64
	for _, p := range peers {
		proxy := redistest.NewProxy(s, srv.Addr())
		k, holder := s.open(p, opening{addr: proxy.Addr()}), s.open(p, opening{addr: srv.Addr()})
		one := perCall(s, proxy, func() { s.cycle(k, "x") })
		h := s.take(holder, "x")
		try := perCall(s, proxy, func() {
			if _, err := k.try(s.Context(), "x"); err == nil {
				s.Fatalf("%s gave out a lock twice", p.name)
			}
		})
		s.must(h.Unlock(s.Context()))
		cycles.values[p.name], busy.values[p.name] = fmt.Sprintf("%.3g", one), fmt.Sprintf("%.3g", try)
		if p.name == levee.name {
			ours, vain = one, try
			left := leftovers(s, direct, k)
			cycles.verdict, cycles.broken = judge(ours == 2 && left == ""), gate(ours == 2 && left == "", "%.3g commands, %s", ours, left)
		}
	}
	busy.verdict, busy.broken = judge(vain == 1), gate(vain == 1, "%.3g commands", vain)
	return []row{cycles, busy}
}

// perCall counts what f sends, once it has sent what is sent only once.
func perCall(s *stage, p *redistest.Proxy, f func()) float64 {
	const calls = 20
	f()
	f()
	before := p.Stats().Commands
	for range calls {
		f()
	}
	return float64(p.Stats().Commands-before) / calls
}

// leftovers says what uncontended cycles leave behind, or "".
func leftovers(s *stage, c *redis.Client, k locker) string {
	before := runtime.NumGoroutine()
	for range 50 {
		s.cycle(k, "x")
	}
	channels, err := c.PubSubChannels(s.Context(), "*").Result()
	s.must(err)
	if len(channels) > 0 {
		return fmt.Sprintf("subscribed to %q", channels)
	}
	gone := func() bool { return runtime.NumGoroutine() <= before }
	for wait := time.Millisecond; !gone(); wait *= 2 {
		if wait > time.Second {
			return fmt.Sprintf("%d goroutines more", runtime.NumGoroutine()-before)
		}
		time.Sleep(wait)
	}
	return ""
}

// latency is P2, on loopback and over a network, where what the machine does is less of the whole.
func latency(s *stage) []row {
	srv, near := s.server()
	loop := s.latencyOf(srv.Addr(), near, pick(s, 3, 15), pick(s, 100, 400))
	loop.figure = "Lock and Unlock uncontended, p50"
	proxy, far := s.network()
	network := s.latencyOf(proxy.Addr(), far, pick(s, 1, 5), pick(s, 5, 20))
	network.figure = "the same, network of some ms"
	return []row{loop, network}
}

// latencyOf lets the peers take turns, some cycles each, so that all see the same machine.
func (s *stage) latencyOf(addr string, direct *redis.Client, rounds, each int) row {
	lockers := make([]locker, len(peers))
	for i, p := range peers {
		lockers[i] = s.open(p, opening{addr: addr})
		s.cycle(lockers[i], p.name)
	}
	figures, rtts, ratios := map[string][]time.Duration{}, []time.Duration{}, []float64{}
	for range rounds {
		rtts = append(rtts, roundTrip(s, direct))
		round := map[string]time.Duration{}
		for i, p := range peers {
			round[p.name] = s.cycleTime(lockers[i], p.name, each)
			figures[p.name] = append(figures[p.name], round[p.name])
		}
		ratios = append(ratios, float64(round[levee.name])/float64(min(round[redsyncs.name], round[redislocks.name])))
	}
	r := row{bar: "≤ 1.15 × the faster of redsync, redislock", values: map[string]string{}, rtt: brief(median(rtts))}
	for name, all := range figures {
		r.values[name] = brief(median(all))
	}
	r.values[levee.name] += fmt.Sprintf(" (× %.2f)", median(ratios))
	r.verdict = s.judgeSpeed(median(ratios) <= 1.15)
	return r
}

// cycleTime is how long a cycle takes, most of the time.
func (s *stage) cycleTime(k locker, name string, n int) time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		began := time.Now()
		s.cycle(k, name)
		all[i] = time.Since(began)
	}
	return median(all)
}

// allocations is P3.
func allocations(s *stage) []row {
	const cycles = 2000
	srv, _ := s.server()
	r := row{figure: "allocations for Lock and Unlock", bar: "≤ 42, ≤ 2.0 KB", values: map[string]string{}}
	for _, p := range peers {
		k := s.open(p, opening{addr: srv.Addr()})
		for range 100 {
			s.cycle(k, p.name)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range cycles {
			s.cycle(k, p.name)
		}
		runtime.ReadMemStats(&after)
		count, bytes := float64(after.Mallocs-before.Mallocs)/cycles, float64(after.TotalAlloc-before.TotalAlloc)/cycles
		r.values[p.name] = fmt.Sprintf("%.0f, %.2g KB", count, bytes/1000)
		if p.name == levee.name {
			r.verdict = judge(count <= 42.5 && bytes <= 2000)
			r.broken = gate(count < 100, "%.0f allocations", count)
		}
	}
	return []row{r}
}

// serverTime is P4: what a cycle costs the server, which has one thread for all.
func serverTime(s *stage) []row {
	srv, direct := s.server()
	rounds, each := pick(s, 3, 9), pick(s, 200, 500)
	figures := map[string][]float64{}
	like := openRedissonLike(s, srv)
	lockers := make([]locker, len(peers))
	for i, p := range peers {
		lockers[i] = s.open(p, opening{addr: srv.Addr()})
	}
	measure := func(name string, commands []string, f func()) {
		f()
		s.must(direct.ConfigResetStat(s.Context()).Err())
		for range each {
			f()
		}
		micros, err := serverMicros(s.Context(), direct, commands...)
		s.must(err)
		figures[name] = append(figures[name], float64(micros)/float64(each))
	}
	for range rounds {
		for i, p := range peers {
			measure(p.name, p.commands, func() { s.cycle(lockers[i], p.name) })
		}
		measure("redisson-like", []string{"evalsha", "del"}, like.cycle)
	}
	r := row{figure: "server time for Lock and Unlock", bar: "≤ 30 µs, ≤ 1.4 × Redisson's scripts", values: map[string]string{}}
	for _, p := range peers {
		r.values[p.name] = fmt.Sprintf("%.1f µs", median(figures[p.name]))
	}
	ours, theirs := median(figures[levee.name]), median(figures["redisson-like"])
	r.bar += fmt.Sprintf(" (%.1f µs)", theirs)
	r.verdict = s.judgeSpeed(ours <= 30 && ours <= 1.4*theirs)
	return []row{r}
}
