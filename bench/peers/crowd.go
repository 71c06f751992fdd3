package main

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

const (
	holdTime = 20 * time.Millisecond   // of a lock that many want
	oneWay   = 1350 * time.Microsecond // of the network that the proxy plays
)

// races is what came of the races of all peers, one after the other in every round.
type races map[string][]race

func (s *stage) races(which []peer, f *fleet, addr string, hold, d time.Duration, rounds int, p *redistest.Proxy) races {
	all := races{}
	for round := range rounds {
		for _, one := range which {
			f.open(one, addr, 0)
			all[one.name] = append(all[one.name], s.race(f, fmt.Sprintf("hot-%d", round), hold, d, p))
		}
	}
	return all
}

// race is one race. One in which nobody had the lock twice, see lockSoon, is run again.
func (s *stage) race(f *fleet, name string, hold, d time.Duration, p *redistest.Proxy) race {
	for again := range 3 {
		if r := f.compete(fmt.Sprintf("%s-%d", name, again), hold, d, p); len(r.turns) > 1 {
			return r
		}
		s.Logf("%s: nobody had the lock for %v", name, d)
	}
	s.Fatalf("%s: nobody gets the lock", name)
	return race{}
}

// waitersOnMessages are all peers, and in the short form those that are told when a lock is free.
func (s *stage) waitersOnMessages() []peer { return pick(s, []peer{levee, rueidislocks}, peers) }

// each is a figure of every race of a peer.
func each[T any](all []race, f func(race) T) (figures []T) {
	for _, r := range all {
		figures = append(figures, f(r))
	}
	return figures
}

// overRueidis is, round by round, a figure of levee's over the same of rueidislock's.
func (all races) overRueidis(f func(race) float64) (ratios []float64) {
	theirs := each(all[rueidislocks.name], f)
	for i, ours := range each(all[levee.name], f) {
		ratios = append(ratios, ours/theirs[i])
	}
	return ratios
}

func quantile(share float64) func(race) time.Duration {
	return func(r race) time.Duration { return at(r.handoffs(), share) }
}

// turns says how many the one had who had most, and who had least, in all rounds.
func turns(all []race) string {
	var most, least int
	for _, r := range all {
		m, l := r.spread()
		most, least = most+m, least+l
	}
	return fmt.Sprintf("turns %d:%d", most, least)
}

// fair tells whether turns are within the bar of each other; half a turn that the window cuts off does not count.
func fair(all []race) bool {
	for _, r := range all {
		if most, least := r.spread(); float64(most-1) > 1.3*float64(least) {
			return false
		}
	}
	return true
}

func crowdSize(s *stage) (nodes, each int) { return pick(s, 4, 20), pick(s, 5, 1) }

func crowdName(nodes, each int) string {
	if each == 1 {
		return fmt.Sprintf("%d processes", nodes)
	}
	return fmt.Sprintf("%d lockers in %d processes", nodes*each, nodes)
}

// handoff is P5 on loopback.
func handoff(s *stage) []row {
	srv, direct := s.server()
	nodes, lockers := crowdSize(s)
	rtt := roundTrip(s, direct)
	all := s.races(s.waitersOnMessages(), s.fleet(nodes, lockers), srv.Addr(), holdTime, pick[time.Duration](s, 800, 2500)*time.Millisecond, pick(s, 1, 5), nil)
	ratio := median(all.overRueidis(func(r race) float64 { return float64(quantile(0.5)(r)) }))
	r := row{
		figure: "handoff p50 / p99, " + crowdName(nodes, lockers) + " that hold for 20 ms", bar: "p50 ≤ 0.7 × rueidislock; turns within 1.3",
		values: all.handoffs(), rtt: brief(rtt), verdict: s.judgeSpeed(ratio <= 0.7 && fair(all[levee.name])),
		broken: gate(fair(all[levee.name]), "%s", turns(all[levee.name])),
	}
	r.values[levee.name] += fmt.Sprintf(" (× %.2f)", ratio)
	return []row{r}
}

func (all races) handoffs() map[string]string {
	values := map[string]string{}
	for name, own := range all {
		values[name] = fmt.Sprintf("%s / %s, %s", brief(median(each(own, quantile(0.5)))), brief(median(each(own, quantile(0.99)))), turns(own))
	}
	return values
}

// network is a server that is some milliseconds away.
func (s *stage) network() (*redistest.Proxy, *redis.Client) {
	srv, _ := s.server()
	p := redistest.NewProxy(s, srv.Addr())
	p.Delay(oneWay, oneWay)
	return p, p.Client(s, srv)
}

// handoffOverNetwork is P5 where a round trip counts, and P6: the proxy counts the commands too.
func handoffOverNetwork(s *stage) []row {
	p, far := s.network()
	nodes, lockers := crowdSize(s)
	rtt := roundTrip(s, far)
	all := s.races(peers, s.fleet(nodes, lockers), p.Addr(), holdTime, pick[time.Duration](s, 1200, 2500)*time.Millisecond, pick(s, 1, 3), p)
	p50, p99 := median(each(all[levee.name], quantile(0.5))), median(each(all[levee.name], quantile(0.99)))
	times := row{
		id: "P5", figure: "the same, network of some ms", bar: "p50 ≤ 1.4 RTT, p99 ≤ 2 RTT + 1 ms", values: all.handoffs(), rtt: brief(rtt),
		verdict: s.judgeSpeed(float64(p50) <= 1.4*float64(rtt) && p99 <= 2*rtt+time.Millisecond),
	}
	times.values[levee.name] += fmt.Sprintf(" (%.2f RTT)", float64(p50)/float64(rtt))
	return []row{times, all.commands("commands for one acquisition, " + crowdName(nodes, lockers))}
}

// commands is P6.
func (all races) commands(figure string) row {
	r := row{id: "P6", figure: figure, bar: "≤ 2.2", values: map[string]string{}}
	for name, own := range all {
		r.values[name] = fmt.Sprintf("%.1f", median(each(own, race.perTurn)))
	}
	ours := all[levee.name]
	sent := median(each(ours, race.perTurn))
	due := median(each(ours, func(r race) float64 { return float64(r.heartbeats()) / float64(len(r.turns)) }))
	r.values[levee.name] = fmt.Sprintf("%.2f", sent)
	if due > 0.005 {
		r.bar += fmt.Sprintf(" + %.2f heartbeats", due)
	}
	r.verdict, r.broken = judge(sent <= 2.2+due), gate(sent <= 2.4+due, "%.2f commands for one acquisition", sent)
	return r
}

// commandsAmongHundred is P6 with so many waiting. They hold for less, so that one turn around is less than a heartbeat.
func commandsAmongHundred(s *stage) []row {
	srv, _ := s.server()
	p := redistest.NewProxy(s, srv.Addr())
	nodes, lockers := pick(s, 4, 20), pick(s, 25, 5)
	all := s.races(peers, s.fleet(nodes, lockers), p.Addr(), 4*time.Millisecond, pick[time.Duration](s, 1500, 3000)*time.Millisecond, pick(s, 1, 3), p)
	return []row{all.commands("commands for one acquisition, " + crowdName(nodes, lockers))}
}

// throughput is P12: everybody wants one lock, for no time at all.
func throughput(s *stage) []row {
	p, far := s.network()
	nodes, lockers := crowdSize(s)
	rtt := roundTrip(s, far)
	f := s.fleet(nodes, lockers)
	all := s.races(s.waitersOnMessages(), f, p.Addr(), 0, pick[time.Duration](s, 800, 2000)*time.Millisecond, pick(s, 1, 5), p)
	least := 0.9 / (1.25 * rtt.Seconds())
	ratio, ours := median(all.overRueidis(race.perSecond)), median(each(all[levee.name], race.perSecond))
	network := row{figure: "acquisitions/s of one lock, held for no time, " + crowdName(nodes, lockers), rtt: brief(rtt),
		bar: fmt.Sprintf("≥ %.0f (0.9 × 1 in 1.25 RTT), ≥ rueidislock", least), values: all.rates(), verdict: s.judgeSpeed(ours >= least && ratio >= 1)}
	srv, direct := s.server()
	loop := s.races(s.waitersOnMessages(), f, srv.Addr(), 0, pick[time.Duration](s, 500, 1500)*time.Millisecond, pick(s, 1, 5), nil)
	ratio = median(loop.overRueidis(race.perSecond))
	return []row{network, {figure: "the same, loopback", bar: "≥ rueidislock", values: loop.rates(), rtt: brief(roundTrip(s, direct)), verdict: s.judgeSpeed(ratio >= 1)}}
}

func (all races) rates() map[string]string {
	values := map[string]string{}
	for name, own := range all {
		values[name] = fmt.Sprintf("%.0f, %s", median(each(own, race.perSecond)), turns(own))
	}
	return values
}
