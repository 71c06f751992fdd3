package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	items   = 10
	writing = time.Millisecond // what taking an item off the stock takes
)

// buyers are few in the short form: those who poll take long to be served.
func (s *stage) buyers() int { return pick(s, 50, 500) }

// flashSale is P14. Buyers and stock are in one process, a fifth of the buyers on a locker of its own.
func flashSale(s *stage) []row {
	srv, direct := s.server()
	rounds := pick(s, 1, 5)
	took := map[string][]time.Duration{}
	for round := range rounds {
		for _, p := range peers {
			took[p.name] = append(took[p.name], s.sell(p, srv.Addr(), fmt.Sprintf("%s-sale-%d", p.name, round)))
		}
	}
	r := row{figure: fmt.Sprintf("%d buyers, %d items: all are served or told that it is sold out", s.buyers(), items),
		bar: "≤ redsync, ≤ redislock", values: map[string]string{}, rtt: brief(roundTrip(s, direct))}
	for name, all := range took {
		r.values[name] = salesText(all)
	}
	ours := median(took[levee.name])
	r.verdict = s.judgeSpeed(ours <= median(took[redsyncs.name]) && ours <= median(took[redislocks.name]))
	return []row{r}
}

// salesText is how long a sale took most of the time. One that some buyers never got out of is not lost in the median.
func salesText(took []time.Duration) string {
	text := withinReason(median(took))
	stuck := 0
	for _, d := range took {
		if d >= giveUp {
			stuck++
		}
	}
	if stuck > 0 {
		text += fmt.Sprintf(" (%d of %d not within %s)", stuck, len(took), brief(giveUp))
	}
	return text
}

// sell is one sale. Whoever sells more than there is, or less, has no lock.
func (s *stage) sell(p peer, addr, name string) time.Duration {
	lockers := make([]locker, 5)
	for i := range lockers {
		k, err := p.open(opening{addr: addr})
		s.must(err)
		defer k.close()
		s.cycle(k, fmt.Sprintf("warm-up-%d", i))
		lockers[i] = k
	}
	stock := &stock{left: items}
	buyers := s.buyers()
	errs := make(chan error, buyers)
	ctx, cancel := context.WithTimeout(s.Context(), giveUp)
	defer cancel()
	var all sync.WaitGroup
	began := time.Now()
	for i := range buyers {
		all.Go(func() {
			h, err := lockers[i%len(lockers)].lock(ctx, name)
			if err == nil {
				stock.buy()
				err = h.Unlock(s.Context())
			}
			errs <- err
		})
	}
	all.Wait()
	took := time.Since(began)
	close(errs)
	for err := range errs {
		if err != nil && ctx.Err() != nil && p.name != levee.name {
			return giveUp
		}
		s.must(err)
	}
	if sold := stock.sold; sold != items {
		s.Fatalf("%s: %d of %d items sold", p.name, sold, items)
	}
	return took
}

// stock is looked at and then changed, without a lock of its own.
type stock struct {
	mu         sync.Mutex // makes two accesses at once no data race; it does not make one of a look and a change
	left, sold int
}

func (k *stock) buy() {
	k.mu.Lock()
	left := k.left
	k.mu.Unlock()
	if left == 0 {
		return
	}
	time.Sleep(writing)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left, k.sold = left-1, k.sold+1
}
