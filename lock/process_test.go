package lock

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// interval is a time in which somebody had a lock.
type interval struct {
	name               string
	fence, from, until int64
}

func readIntervals(t *testing.T, text string) (all []interval) {
	t.Helper()
	for word := range strings.FieldsSeq(text) {
		var i interval
		parts := strings.Split(word, "/")
		i.name = parts[0]
		_, err := fmt.Sscan(strings.Join(parts[1:], " "), &i.fence, &i.from, &i.until)
		must(t, err)
		all = append(all, i)
	}
	return all
}

func TestT01NoTwoProcessesHaveALockAtOnce(t *testing.T) {
	s := redistest.RealOnly(t)
	d := 1500 * time.Millisecond
	if os.Getenv("LEVEE_SOAK") == "1" {
		d = 20 * time.Second
	}
	for _, names := range []int{1, 50} {
		nodes := processes(t, s, 3, time.Second)
		for _, n := range nodes {
			n.Send(fmt.Sprintf("compete %d 100 %d", names, d.Milliseconds()))
		}
		byName := map[string][]interval{}
		total := 0
		for _, n := range nodes {
			for _, i := range readIntervals(t, n.Line(d+30*time.Second)) {
				byName[i.name] = append(byName[i.name], i)
				total++
			}
		}
		t.Logf("%d names: had %d times", names, total)
		equal(t, "names", len(byName), names)
		for name, all := range byName {
			slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.fence, b.fence) })
			for i := range all[1:] {
				if a, b := all[i], all[i+1]; b.fence == a.fence || b.from < a.until {
					t.Errorf("%s: %+v, and then %+v", name, a, b)
				}
			}
		}
	}
}

func TestT03WhatAStoppedHolderWritesLaterIsRefused(t *testing.T) {
	s := redistest.RealOnly(t)
	nodes := processes(t, s, 2, time.Second)
	a, b := nodes[0], nodes[1]
	first := a.locks(t, "x")
	equal(t, "a writes", a.Ask("write register", time.Second), "valid true, written 1, <nil>")
	a.Pause()
	second := b.locks(t, "x")
	if second <= first {
		t.Errorf("fences: %d, then %d", first, second)
	}
	equal(t, "b writes", b.Ask("write register", time.Second), "valid true, written 1, <nil>")
	time.Sleep(3 * time.Second) // real time: a process is stopped for three leases
	a.Resume()
	equal(t, "a writes too late", a.Ask("write register", time.Second), "valid false, written 0, <nil>")
	if lost := a.Ask("lost", time.Second); !strings.Contains(lost, "was lost") {
		t.Errorf("a says %q", lost)
	}
	equal(t, "b goes on", b.Ask("unlock", time.Second), "unlocked <nil>")
}

func TestT05AHolderThatIsKilledCostsOneLease(t *testing.T) {
	const lease = time.Second
	for situation, others := range map[string]int{"alone": 0, "among half a million volatile keys": 500_000} {
		t.Run(situation, func(t *testing.T) {
			s := redistest.RealOnly(t)
			volatile(t, s.Client(t), others)
			nodes := processes(t, s, 2, lease)
			nodes[0].locks(t, "x")
			nodes[1].Send("lock x")
			inQueue(t, s, "x", 1)
			nodes[0].Kill()
			killed := time.Now()
			nodes[1].has(t, 10*time.Second)
			took := time.Since(killed)
			t.Logf("the next one had it %v after the kill", took)
			if took > lease+100*time.Millisecond {
				t.Errorf("the next one had it after %v", took)
			}
		})
	}
}

// volatile fills the server with keys that have a lifetime.
func volatile(t *testing.T, c *redis.Client, n int) {
	t.Helper()
	must(t, c.Eval(t.Context(), `for i = 1, ARGV[1] do redis.call('SET', 'other' .. i, '', 'PX', 600000 + i) end return 0`,
		[]string{"other"}, n).Err())
}

// inQueue waits until so many wait for a lock, and their inboxes are open.
func inQueue(t *testing.T, s *redistest.Server, name string, n int) {
	t.Helper()
	c := s.Client(t)
	redistest.Eventually(t, 10*time.Second, func() bool {
		raw := c.Get(t.Context(), "lk:"+name).Val()
		if len(raw) != lockSize+n*entrySize {
			return false
		}
		for i := range n {
			at := lockSize + i*entrySize + entryOffsets[qInbox]
			if raw[at:at+TokenSize] == noToken {
				return false
			}
		}
		return true
	}, "the queue")
}

func TestT06AWaiterThatIsKilledIsPassedOver(t *testing.T) {
	s := redistest.RealOnly(t)
	nodes := processes(t, s, 3, 10*time.Second)
	nodes[0].locks(t, "x")
	for i, n := range nodes[1:] {
		n.Send("lock x")
		inQueue(t, s, "x", i+1)
	}
	nodes[1].Kill()
	began := time.Now()
	nodes[0].Send("unlock")
	nodes[2].has(t, 10*time.Second)
	if took := time.Since(began); took > 150*time.Millisecond {
		t.Errorf("the next one had it after %v", took)
	}
}

func TestT06AWaiterThatWasStoppedForLongIsPassedOver(t *testing.T) {
	s := redistest.RealOnly(t)
	nodes := processes(t, s, 3, 10*time.Second)
	nodes[0].locks(t, "x")
	for i, n := range nodes[1:] {
		n.Send("lock x")
		inQueue(t, s, "x", i+1)
	}
	nodes[1].Pause()
	time.Sleep(alive + 200*time.Millisecond) // real time: a process is stopped
	began := time.Now()
	nodes[0].Send("unlock")
	nodes[2].has(t, 10*time.Second)
	if took := time.Since(began); took > 150*time.Millisecond {
		t.Errorf("the next one had it after %v", took)
	}
	nodes[1].Resume()
	nodes[2].Send("unlock")
	nodes[1].has(t, 3*time.Second)
}

func TestT07AProcessThatIsStoppedAsItIsGrantedTheLockCostsOneClaim(t *testing.T) {
	s := redistest.RealOnly(t)
	nodes := processes(t, s, 3, 10*time.Second)
	first := nodes[0].locks(t, "x")
	for i, n := range nodes[1:] {
		n.Send("lock x")
		inQueue(t, s, "x", i+1)
	}
	nodes[1].Pause()
	began := time.Now()
	nodes[0].Send("unlock")
	last := nodes[2].has(t, 10*time.Second)
	took := time.Since(began)
	t.Logf("the next one had it after %v", took)
	if took > claim+time.Second {
		t.Errorf("the next one had it after %v", took)
	}
	nodes[1].Resume()
	nodes[2].Send("unlock")
	if again := nodes[1].has(t, 5*time.Second); again <= last || last <= first {
		t.Errorf("fences: %d, %d, %d", first, last, again)
	}
}
