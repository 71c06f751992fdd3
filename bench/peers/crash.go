package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

// giveUp is how long something is waited for at the most.
const giveUp = time.Minute

// takeover is P9: the holder is killed, in a server that has many other keys with a lifetime.
func takeover(s *stage) []row {
	srv, c := s.server()
	others := pick(s, 100_000, 500_000)
	s.must(c.Eval(s.Context(), `for i = 1, ARGV[1] do redis.call('SET', 'other' .. i, '', 'PX', 600000 + i) end return 0`,
		[]string{"other"}, others).Err())
	late := map[string][]time.Duration{}
	for _, p := range peers {
		late[p.name] = nil
	}
	results := make(chan func(), len(peers))
	s.atOnce(pick(s, peers[:1], peers), func(p peer) {
		all := s.takeovers(p, srv)
		results <- func() { late[p.name] = all }
	})
	close(results)
	for note := range results {
		note()
	}
	r := row{figure: fmt.Sprintf("holder killed, %d other keys: the next one has it after the end of a lease of 2 s, at the latest", others),
		bar: "≤ 100 ms", values: map[string]string{}}
	for name, all := range late {
		if len(all) > 0 {
			r.values[name] = withinReason(slices.Max(all))
		}
	}
	ours := slices.Max(late[levee.name])
	r.verdict, r.broken = judge(ours <= 100*time.Millisecond), gate(ours <= 500*time.Millisecond, "%v after the end", ours)
	return []row{r}
}

// withinReason is a time that was not waited for without end.
func withinReason(late time.Duration) string {
	if late >= giveUp {
		return "not within " + brief(giveUp)
	}
	return brief(late)
}

// takeovers is how long after the end of the lease the next one had the lock, each time.
func (s *stage) takeovers(p peer, srv *redistest.Server) (late []time.Duration) {
	for round := range pick(s, 1, 7) {
		one := s.takeoverOnce(p, srv, fmt.Sprintf("%s-crash-%d", p.name, round))
		late = append(late, one)
		if one > 10*time.Second {
			break // more of that tells nothing
		}
	}
	return late
}

func (s *stage) takeoverOnce(p peer, srv *redistest.Server, name string) time.Duration {
	const lease = 2 * time.Second
	holder, next := s.fleet(1, 1), s.fleet(1, 1)
	holder.open(p, srv.Addr(), lease)
	next.open(p, srv.Addr(), lease)
	holder.ask(0, order{Do: "take", Name: name, Count: 1}, 10*time.Second)
	ends := time.Now().Add(lease)
	next.send(0, order{Do: "wait", Name: name, For: lease + giveUp})
	time.Sleep(lease / 8) // the next one waits, and nothing was renewed yet
	holder.nodes[0].Kill()
	if next.answer(0, lease+2*giveUp).InVain {
		return giveUp
	}
	return time.Since(ends)
}
