package lock

import (
	"errors"
	options "flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var lockSeed = options.Uint64("lock.seed", 0, "the sequence that the twin is held to; 0 for another one each time")

// TestT31TheTwinDoesWhatTheScriptsDo: after each step of a random sequence the answer, the lock byte for byte, its
// lifetime and what was published are the same, and nothing is left that has no lifetime or two entries of one token.
func TestT31TheTwinDoesWhatTheScriptsDo(t *testing.T) {
	seed := *lockSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	sequences := 8
	if os.Getenv("LEVEE_SOAK") == "1" {
		sequences = 200
	}
	onServers(t, func(r *rig) {
		r.t.Logf("-lock.seed=%d", seed)
		seen := map[string]int{}
		for i := range sequences {
			must(r.t, newPair(r, seed+uint64(i), seen).walk(600))
		}
		for _, s := range everyAnswer {
			if seen[s] == 0 {
				r.t.Errorf("no script has answered %q", s)
			}
		}
	})
}

// everyAnswer is what scripts can answer; sequences that leave one out show little.
var everyAnswer = strings.Fields(`acquire:late acquire:foreign acquire:acquired acquire:abandoned acquire:busy
	renew:held renew:lost:expired renew:lost:taken renew:lost:broken renew:lost:gone renew:lost:foreign
	release:released release:left release:gone release:foreign break:broken break:gone break:other break:foreign inspect:seen inspect:foreign`)

// pair is a lock and its twin.
type pair struct {
	*rig
	twin
	rand *rand.Rand
	us   int64 // of the last answer
	seen map[string]int
	log  []string
	ears *redis.PubSub
}

func newPair(r *rig, seed uint64, seen map[string]int) *pair {
	p := &pair{rig: r, rand: rand.New(rand.NewPCG(seed, 0)), seen: seen}
	p.heard = token(fmt.Sprint("heard", seed%1000))
	p.ears = r.c.Subscribe(r.t.Context(), "in:"+p.heard)
	_, err := p.ears.Receive(r.t.Context())
	must(r.t, err)
	p.delete()
	return p
}

func (p *pair) delete() {
	p.c.Del(p.t.Context(), p.key)
	p.remove()
}

// walk goes so many steps, or until something differs.
func (p *pair) walk(steps int) error {
	p.t.Helper()
	defer func() { _ = p.ears.Close() }()
	p.us = p.now()
	for i := range steps {
		if err := errors.Join(p.step(), p.compare()); err != nil {
			return fmt.Errorf("step %d: %w; the last steps:\n%s", i, err, strings.Join(p.log[max(0, len(p.log)-14):], "\n"))
		}
	}
	return p.messages()
}

// messages compares what was published.
func (p *pair) messages() error {
	p.t.Helper()
	for _, want := range p.sent {
		m, err := p.ears.ReceiveMessage(p.t.Context())
		if err != nil {
			return err
		}
		if m.Payload != want+p.key {
			return fmt.Errorf("published %q, the twin %q", m.Payload, want+p.key)
		}
	}
	p.sent = nil
	return nil
}

func pick[T any](p *pair, from ...T) T { return from[p.rand.IntN(len(from))] }

func (p *pair) note(format string, args ...any) { p.log = append(p.log, fmt.Sprintf(format, args...)) }

func (p *pair) step() error {
	switch n := p.rand.IntN(100); {
	case n < 12:
		p.elapse(pick(p, 1, 1000, 1900, 2900, 8000, 40_000, -5000))
	case n < 14:
		p.note("DEL")
		p.delete()
	case n < 17:
		p.garble()
	case n < 18:
		p.crowd()
	default:
		return p.call()
	}
	return nil
}

// drawn is one call of a script in both languages.
type drawn struct {
	name   string
	script *redis.Script
	args   []any
	twin   func(us int64) told
}

func (p *pair) call() error {
	p.t.Helper()
	c := p.draw()
	p.note("%s %v", c.name, c.args)
	a := p.do(c.script, c.args...)
	p.us = a.micros
	want := c.twin(a.micros)
	p.note("   %s %v at %d, the twin: %s %v", a.status, a.values, a.micros, want.status, want.values)
	name := c.name + ":" + a.status
	if a.status == statusLost {
		name += ":" + a.text(0)
	}
	p.seen[name]++
	return errors.Join(differ("status", a.status, want.status), differ("answer", fmt.Sprintf("%v", a.values), fmt.Sprintf("%v", want.values)))
}

// differ is nil if got is want.
func differ[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: the server has %v, the twin %v", what, got, want)
	}
	return nil
}

func (p *pair) who() string { return token(pick(p, "A", "B", "C", "D")) }

// holder is who has it, or had it, or somebody.
func (p *pair) holder() string { return pick(p, p.twin.token, p.twin.token, p.released, p.who()) }

func (p *pair) length() int64 { return pick(p, int64(1500), 5000, 30_000) }

func (p *pair) draw() drawn {
	counted := p.rand.IntN(2) == 0
	switch n := p.rand.IntN(100); {
	case n < 50:
		return p.drawAcquire(counted)
	case n < 65:
		who, lease := p.holder(), p.length()
		return drawn{"renew", scripts.renew, []any{who, "in:", flag(counted), lease},
			func(us int64) told { return p.twin.renew(us, who, lease) }}
	case n < 85:
		who := p.holder()
		if who == noToken {
			who = p.who()
		}
		return drawn{"release", scripts.release, []any{who, "in:", flag(counted)},
			func(us int64) told { return p.twin.release(us, who, counted) }}
	case n < 92:
		fence := pick(p, p.fence, p.fence, p.fence-1)
		return drawn{"break", scripts.breaking, []any{noToken, "in:", flag(counted), fence},
			func(us int64) told { return p.twin.breaking(us, fence, counted) }}
	}
	return drawn{"inspect", scripts.inspect, []any{noToken, "in:", flag(counted)}, p.twin.inspect}
}

func (p *pair) drawAcquire(counted bool) drawn {
	a := acquireArgs{token: p.who(), inbox: pick(p, noToken, p.heard, token("deaf")), lease: p.length(), counted: counted,
		barge: p.rand.IntN(8) == 0, alive: pick(p, 0, alive.Milliseconds(), alive.Milliseconds()),
		notAfter: pick(p, 0, 0, 0, p.us+100_000_000, p.us-1)}
	a.holder = holderText("of " + a.token[:1] + pick(p, "", " é", "\n"))
	args := []any{a.token, "in:", flag(counted), a.lease, a.holder, a.inbox, a.alive, flag(a.barge), a.notAfter}
	return drawn{"acquire", scripts.acquire, args, func(us int64) told { return p.twin.acquire(us, a) }}
}

// slack is how far two readings of a lifetime may lie apart; margin is the least that anything has left when a script
// runs, or has been over: on a real server time passes between the steps.
const slack, margin = 150, 400

// compare looks at what stands there, and for how much longer.
func (p *pair) compare() error {
	p.t.Helper()
	now := millisOf(p.now())
	text, left := p.rig.raw(), p.life().Milliseconds()
	if p.what == absent {
		return differ("what should not be there", text, "")
	}
	err := differ("lock", text, p.wire())
	if want := p.dies - now; left < want-slack || left > want+slack {
		err = errors.Join(err, differ("lifetime", left, want))
	}
	seen := map[string]bool{}
	for _, q := range p.queue {
		if seen[q.token] {
			err = errors.Join(err, fmt.Errorf("%s waits twice", q.token))
		}
		seen[q.token] = true
	}
	return err
}

// elapse lets d ms pass on the server, which has a clock of its own: what is there is moved into the past, or for a
// clock that steps back, ahead. Nothing is left so near its end that the time the test takes could decide.
func (p *pair) elapse(d int) {
	p.t.Helper()
	p.note("%d ms pass", d)
	by, now := int64(d), millisOf(p.now())
	near := func(at int64) bool { return max(at-now, now-at) < margin }
	p.fence, p.since, p.ends, p.dies = p.fence-1000*by, p.since-by, p.ends-by, p.dies-by
	if near(p.ends) {
		p.ends -= 2 * margin
	}
	for i := range p.queue {
		p.queue[i].alive -= by
		for near(p.queue[i].alive) || near(p.queue[i].alive-alive.Milliseconds()) {
			p.queue[i].alive -= 2 * margin
		}
	}
	if near(p.ends - p.lease) { // that would be the edge of a step back
		p.ends -= 2 * margin
	}
	if p.what == absent || p.dies-now < margin || p.fence < 0 {
		p.delete()
		return
	}
	p.write(now)
}

// write puts the twin's text under the key.
func (p *pair) write(now int64) {
	p.t.Helper()
	must(p.t, p.c.Set(p.t.Context(), p.key, p.wire(), time.Duration(p.dies-now)*time.Millisecond).Err())
}

// garble puts something there that is no lock.
func (p *pair) garble() {
	p.t.Helper()
	p.remove()
	whole := p.wire()
	p.what, p.twin.raw = garbled, pick(p, "x", whole[1:], whole+"y", "LVK0"+whole[4:])
	p.note("garble %q", p.twin.raw)
	p.dies = millisOf(p.now()) + 600_000
	p.write(millisOf(p.now()))
}

// crowd fills the queue.
func (p *pair) crowd() {
	p.t.Helper()
	now := millisOf(p.now())
	if p.what != present {
		return
	}
	p.note("crowd")
	for i := len(p.queue); i < queueCap; i++ {
		p.queue = append(p.queue, place{token(fmt.Sprint("crowd", len(p.log), "-", i)), token("deaf"), now + pick(p, int64(2000), -2000), holderText("")})
	}
	p.write(now)
}
