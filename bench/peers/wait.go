package main

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// waitingCost is P7: what processes send that wait for a lock in vain, one goroutine in each or many. The PINGs
// that clients send on connections that are silent are for no name: they are told apart.
func waitingCost(s *stage) []row {
	const nodes = 5
	window := pick[time.Duration](s, 4, 15) * time.Second
	counts := pick(s, []int{10}, []int{1, 10})
	r := row{figure: fmt.Sprintf("commands/s of a process that waits, with so many goroutines: %v", counts), bar: "≤ 1.3", values: map[string]string{}}
	var worst float64
	for i, goroutines := range counts {
		rates := make(chan waitingRate, len(peers))
		s.atOnce(peers, func(p peer) { rates <- s.waitingRate(p, nodes, goroutines, window) })
		close(rates)
		for rate := range rates {
			if i > 0 {
				r.values[rate.peer] += "; "
			}
			r.values[rate.peer] += rate.String()
			if rate.peer == levee.name {
				worst = max(worst, rate.commands)
			}
		}
	}
	r.verdict, r.broken = judge(worst <= 1.3), gate(worst <= 1.5, "%.2f commands/s", worst)
	return []row{r}
}

// waitingRate is what one process sends in a second.
type waitingRate struct {
	peer            string
	commands, pings float64
}

func (r waitingRate) String() string {
	text := fmt.Sprintf("%.2f", r.commands)
	if r.pings > 0 {
		text += fmt.Sprintf(" + %.2f PING", r.pings)
	}
	return text
}

// waitingRate has a server of its own count.
func (s *stage) waitingRate(p peer, nodes, goroutines int, window time.Duration) waitingRate {
	srv, c := s.server()
	s.occupy(p, srv, c, "x")
	proxy := redistest.NewProxy(s, srv.Addr())
	f := s.fleet(nodes, 1)
	f.open(p, proxy.Addr(), 0)
	for i := range f.nodes {
		f.ask(i, order{Do: "crowd", Name: "x", Count: goroutines}, 10*time.Second)
	}
	time.Sleep(s.rush())
	s.must(c.ConfigResetStat(s.Context()).Err())
	before, began := proxy.Stats().Commands, time.Now()
	time.Sleep(window)
	seconds := time.Since(began).Seconds() * float64(nodes)
	sent := float64(proxy.Stats().Commands - before)
	pings, err := commandCalls(s.Context(), c, "ping")
	s.must(err)
	for _, one := range f.nodes {
		one.Kill()
	}
	return waitingRate{p.name, (sent - float64(pings)) / seconds, float64(pings) / seconds}
}

// occupy has a lock be held by somebody who sends nothing meanwhile.
func (s *stage) occupy(p peer, srv *redistest.Server, c *redis.Client, name string) {
	if p.key != nil {
		s.must(c.Set(s.Context(), p.key(name), "somebody", time.Minute).Err())
		return
	}
	s.take(s.open(p, opening{addr: srv.Addr(), lease: time.Minute}), name)
}

// renewals is P8: one process with many leases. rueidislock, which renews too, is given the same length of lease.
func renewals(s *stage) []row {
	srv, _ := s.server()
	lease, window := pick[time.Duration](s, 3, 10)*time.Second, pick[time.Duration](s, 4, 12)*time.Second
	held := pick(s, 1000, 10_000)
	most := 1.1 * float64(held) / (lease.Seconds() / 3)
	r := row{figure: fmt.Sprintf("%d held leases of %v: commands/s, part of a core", held, lease), bar: fmt.Sprintf("≤ %.0f, < 10 %%", most),
		values: map[string]string{redsyncs.name: "does not renew", redislocks.name: "does not renew"}}
	for _, p := range []peer{levee, rueidislocks} {
		rate, core := s.renewing(p, srv, held, lease, window)
		r.values[p.name] = fmt.Sprintf("%.0f, %.1f %%", rate, 100*core)
		if p.name == levee.name {
			r.verdict = s.judgeSpeed(rate <= most && core < 0.1)
			r.broken = gate(rate <= 1.3*most && rate >= most/2, "%.0f commands/s", rate)
			if s.short {
				break
			}
		}
	}
	return []row{r}
}

// renewing is what a process sends that holds so many leases, and how much of a core it uses.
func (s *stage) renewing(p peer, srv *redistest.Server, held int, lease, window time.Duration) (rate, core float64) {
	proxy := redistest.NewProxy(s, srv.Addr())
	f := s.fleet(1, 1)
	f.open(p, proxy.Addr(), lease)
	f.ask(0, order{Do: "take", Name: p.name, Count: held}, time.Minute)
	time.Sleep(lease / 2) // every lease has been renewed once
	used := f.ask(0, order{Do: "cpu"}, 10*time.Second).CPU
	before, began := proxy.Stats().Commands, time.Now()
	time.Sleep(window)
	took := time.Since(began).Seconds()
	sent := proxy.Stats().Commands - before
	used = f.ask(0, order{Do: "cpu"}, 10*time.Second).CPU - used
	f.nodes[0].Kill()
	return float64(sent) / took, used.Seconds() / took
}
