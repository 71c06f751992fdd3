package lock

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// crowd makes nodes whose commands are counted.
func (s *server) crowd(n int, options ...Option) (nodes []node, m *meter) {
	m = &meter{}
	for range n {
		one := s.node(options...)
		one.client.AddHook(m)
		nodes = append(nodes, one)
	}
	return nodes, m
}

func TestUncontendedALockCostsTwoCommands(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		nodes, m := s.crowd(1)
		k := nodes[0].Locker
		must(t, lock(t, k, "x").Unlock(t.Context()))
		before := m.commands.Load()
		for range 10 {
			must(t, lock(t, k, "x").Unlock(t.Context()))
		}
		equal(t, "commands for ten", m.commands.Load()-before, 20)
		l := lock(t, k, "x")
		before = m.commands.Load()
		_, err := k.TryLock(t.Context(), "x")
		is(t, "second", err, ErrBusy)
		equal(t, "commands of a TryLock in vain", m.commands.Load()-before, 1)
		must(t, l.Unlock(t.Context()))
	})
}

func TestT25AHandoffAmongHundredProcessesCostsTwoCommands(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		const crowd, each = 100, 4
		nodes, m := s.crowd(crowd)
		first := lock(t, s.locker(), "x")
		var all sync.WaitGroup
		var mu sync.Mutex
		turns := make([]int, crowd)
		for i, n := range nodes {
			all.Go(func() {
				for range each {
					must(t, n.Do(t.Context(), "x", func(context.Context, *Lease) error {
						time.Sleep(time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						turns[i]++
						return nil
					}))
				}
			})
		}
		time.Sleep(100 * time.Millisecond) // all wait, and their inboxes are open
		synctest.Wait()
		before, began := m.commands.Load(), time.Now()
		must(t, first.Unlock(t.Context()))
		all.Wait()
		sent := m.commands.Load() - before
		t.Logf("%d commands for %d acquisitions in %v", sent, crowd*each, time.Since(began))
		if sent > crowd*each*22/10 {
			t.Errorf("%d commands for %d acquisitions", sent, crowd*each)
		}
		for i, n := range turns {
			if n != each {
				t.Errorf("process %d had %d turns", i, n)
			}
		}
	})
}

func TestT26TurnsGoRound(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		const crowd = 20
		nodes, _ := s.crowd(crowd)
		first := lock(t, s.locker(), "x")
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		turns := make([]int, crowd)
		for i, n := range nodes {
			all.Go(func() {
				for {
					l, err := n.Lock(ctx, "x")
					if err != nil {
						return
					}
					turns[i]++
					time.Sleep(20 * time.Millisecond)
					must(t, l.Unlock(t.Context()))
				}
			})
		}
		time.Sleep(time.Second)
		must(t, first.Unlock(t.Context()))
		time.Sleep(30 * time.Second)
		cancel()
		all.Wait()
		least, most := turns[0], 0
		for _, n := range turns {
			least, most = min(least, n), max(most, n)
		}
		t.Logf("turns: from %d to %d", least, most)
		if least == 0 || float64(most)/float64(least) > 1.3 {
			t.Errorf("turns: %v", turns)
		}
	})
}

func TestT27NobodyStarvesInAQueueThatIsFull(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		const crowd, each = 160, 3
		nodes, _ := s.crowd(crowd)
		first := lock(t, s.locker(), "x")
		var all sync.WaitGroup
		for _, n := range nodes {
			all.Go(func() {
				for range each {
					must(t, n.Do(t.Context(), "x", func(context.Context, *Lease) error {
						time.Sleep(10 * time.Millisecond)
						return nil
					}))
				}
			})
		}
		time.Sleep(time.Second)
		state, err := nodes[0].Inspect(t.Context(), "x")
		must(t, err)
		equal(t, "in the queue", state.Waiting, queueCap)
		began := time.Now()
		must(t, first.Unlock(t.Context()))
		all.Wait()
		fair := crowd * each * 10 * time.Millisecond
		if took := time.Since(began); took > 3*fair {
			t.Errorf("it took %v, the fair share is %v", took, fair)
		}
	})
}

func TestAWaitingProcessAsksOnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		nodes, m := s.crowd(1)
		l := lock(t, s.locker(), "x")
		var all sync.WaitGroup
		for range 50 { // one of them talks to Redis
			all.Go(func() { must(t, lock(t, nodes[0].Locker, "x").Unlock(t.Context())) })
		}
		time.Sleep(5 * time.Second)
		before := m.commands.Load()
		time.Sleep(100 * time.Second)
		if n := m.commands.Load() - before; n > 130 || n < 80 {
			t.Errorf("%d commands in 100 s", n)
		}
		must(t, l.Unlock(t.Context()))
		all.Wait()
	})
}

func TestWhoHasNoPlaceAsksFourTimesASecond(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		nodes, _ := s.crowd(queueCap)
		l := lock(t, s.locker(), "x")
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		wait := func(n node) { all.Go(func() { _, _ = n.Lock(ctx, "x") }) }
		for _, n := range nodes {
			wait(n)
		}
		time.Sleep(time.Second)
		more, m := s.crowd(1)
		wait(more[0])
		time.Sleep(10 * time.Second)
		if n := m.commands.Load(); n < 30 || n > 70 {
			t.Errorf("%d commands in ten seconds", n)
		}
		cancel()
		all.Wait()
		must(t, l.Unlock(t.Context()))
	})
}

func TestT28ThousandsOfLeasesAreRenewedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		held := 1000
		if os.Getenv("LEVEE_SOAK") == "1" {
			held = 10_000
		}
		nodes, m := s.crowd(1)
		n := nodes[0]
		var leases []*Lease
		for i := range held {
			leases = append(leases, lock(t, n.Locker, strconv.Itoa(i)))
			time.Sleep(time.Millisecond)
		}
		before, pipelines := m.commands.Load(), m.pipelines.Load()
		time.Sleep(20 * time.Second)
		renewals, pipelines := m.commands.Load()-before, m.pipelines.Load()-pipelines
		t.Logf("%d renewals in %d pipelines in 20 s", renewals, pipelines)
		if most := int64(float64(held) * 20 / (10.0 / 3) * 1.1); renewals > most || pipelines > 2000 {
			t.Errorf("%d renewals in %d pipelines in 20 s, the most is %d", renewals, pipelines, most)
		}
		equal(t, "lost", s.told(Lost), 0)
		for _, l := range leases {
			must(t, l.Context().Err())
		}
	})
}

func TestTryLockDoesNotOvertakeThoseWhoWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b, c := s.node(), s.node(), s.node()
		l := lock(t, a.Locker, "x", WithoutRenewal(), WithLease(time.Second))
		got := make(chan *Lease)
		go func() { got <- lock(t, b.Locker, "x", WithLabel("who waits")) }()
		time.Sleep(100 * time.Millisecond)
		b.wire.Freeze()
		time.Sleep(time.Second)
		_, err := c.TryLock(t.Context(), "x")
		is(t, "try", err, ErrBusy)
		equal(t, "names who waits", strings.Contains(err.Error(), "who waits"), true)
		b.wire.Thaw()
		next := <-got
		must(t, next.Unlock(t.Context()))
		is(t, "the first", l.Unlock(t.Context()), ErrLost)
	})
}

func TestBargingTakesWhatIsFreeAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		a, b, c := s.node(), s.node(), s.node()
		lock(t, a.Locker, "x", WithoutRenewal(), WithLease(time.Second))
		got := make(chan *Lease)
		go func() { got <- lock(t, b.Locker, "x") }()
		time.Sleep(100 * time.Millisecond)
		b.wire.Freeze()
		time.Sleep(time.Second)
		l, err := c.TryLock(t.Context(), "x", WithBarge())
		must(t, err)
		b.wire.Thaw()
		time.Sleep(100 * time.Millisecond)
		must(t, l.Unlock(t.Context()))
		must(t, (<-got).Unlock(t.Context()))
	})
}
