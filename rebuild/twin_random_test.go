package rebuild

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

var twinSeed = options.Uint64("twin.seed", 0, "the sequence that the twin is held to; 0 for another one each time")

// TestTheTwinDoesWhatTheScriptsDo: after each step of a random sequence the answer, the entry byte
// for byte, and its lifetime are the same.
func TestTheTwinDoesWhatTheScriptsDo(t *testing.T) {
	seed := *twinSeed
	if seed == 0 {
		seed = rand.Uint64() >> 1
	}
	sequences := 8
	if os.Getenv("LEVEE_SOAK") == "1" {
		sequences = 400
	}
	onServers(t, func(r *rig) {
		r.t.Logf("-twin.seed=%d", seed)
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
var everyAnswer = strings.Fields(`acquire:late acquire:absent acquire:unreadable acquire:fresh acquire:idle acquire:held
	acquire:backoff acquire:pass acquire:leased renew:held renew:lost commit:committed commit:refused commit:older
	pass:passed pass:refused fail:failed fail:refused release:released release:gone delete:deleted expire:expired
	seize:seized seize:older seize:late`)

// pair is a key and its twin.
type pair struct {
	*rig
	twin
	rand   *rand.Rand
	starts []Micros // of leases, the latest last
	now    Micros   // of the last answer
	seen   map[string]int
	log    []string
}

func newPair(r *rig, seed uint64, seen map[string]int) *pair {
	p := &pair{rig: r, rand: rand.New(rand.NewPCG(seed, 0)), seen: seen}
	p.rig.remove()
	return p
}

// walk goes so many steps, or until something differs.
func (p *pair) walk(steps int) error {
	p.t.Helper()
	p.now = p.rig.now()
	for i := range steps {
		if err := errors.Join(p.step(), p.compare()); err != nil {
			return fmt.Errorf("step %d: %w; the last steps:\n%s", i, err, strings.Join(p.log[max(0, len(p.log)-12):], "\n"))
		}
	}
	return nil
}

func (p *pair) step() error {
	switch n := p.rand.IntN(100); {
	case n < 12:
		p.elapse(pick(p, []time.Duration{time.Microsecond, time.Second, 20 * time.Second, 70 * time.Second, 3 * time.Minute, -5 * time.Second}))
	case n < 14:
		p.note("foreign DEL")
		p.rig.remove()
		p.twin.remove()
	case n < 17:
		p.plant()
	default:
		return p.call()
	}
	return nil
}

func (p *pair) note(format string, args ...any) { p.log = append(p.log, fmt.Sprintf(format, args...)) }

func pick[T any](p *pair, from []T) T { return from[p.rand.IntN(len(from))] }

// call runs one script on both.
func (p *pair) call() error {
	p.t.Helper()
	c := p.draw()
	p.note("%s %v", c.name, c.args)
	answer := p.do(c.script, c.args...)
	p.now = answer.Now
	p.twin.passes(answer.Now)
	want := c.twin(&p.twin, answer.Now)
	p.seen[c.name+":"+string(answer.Status)]++
	p.note("   %v %d, the twin: %v", answer.Status, answer.Now, want.Status)
	p.starts = append(p.starts, p.twin.Start)
	p.starts = p.starts[max(0, len(p.starts)-6):]
	return p.same(answer, want)
}

func (p *pair) same(got reply, want told) error {
	return errors.Join(
		differ("status", got.Status, want.Status),
		differ("wake-ups", got.int(2), int64(want.Published)),
		differ("the rest of the answer", fmt.Sprintf("%q", got.values[3:]), fmt.Sprintf("%q", want.values(p.key.Hash))))
}

// values is what the script answers after status, time and wake-up.
func (r told) values(hash uint64) []any {
	values := []any{}
	if r.Header.Kind != 0 {
		r.Header.Hash = hash
		values = append(values, string(r.Header.format()))
		if r.Status != statusCommitted {
			values = append(values, r.Rest)
		}
	}
	for _, n := range r.Numbers {
		if n != 0 {
			values = append(values, n)
		}
	}
	return values
}

// differ is nil if got is want.
func differ[T comparable](what string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s: the server has %v, the twin %v", what, got, want)
	}
	return nil
}

// about is nil if got and want lie within slack.
func about(what string, got, want Millis) error {
	if got < want-slack || got > want+slack {
		return differ(what, got, want)
	}
	return nil
}

// slack is how far two readings of a lifetime may lie apart, in milliseconds; margin is the least that
// a key has left when a script runs: on a server time passes, and what would die is removed.
const slack, margin = 100, 1000

// compare looks at what stands there, and for how much longer.
func (p *pair) compare() error {
	p.t.Helper()
	text, left := p.look()
	short := p.until - p.now.millis()
	var err error
	switch {
	case p.what != absent && short > slack:
		err = errors.Join(differ("entry", text, p.onServer(p.key.Hash)), about("lifetime", left, short))
	case text != "":
		err = about("lifetime of what should be gone", left, 0)
	}
	if short <= margin {
		p.rig.remove()
		p.twin.remove()
	}
	return err
}

// look reads the entry, its lifetime and the time, at one instant.
func (p *pair) look() (text string, left Millis) {
	p.t.Helper()
	ctx, pipe := p.t.Context(), p.c.TxPipeline()
	now, life, get := pipe.Time(ctx), pipe.PTTL(ctx, p.key.Redis), pipe.Get(ctx, p.key.Redis)
	if _, err := pipe.Exec(ctx); err != redis.Nil {
		must(p.t, err)
	}
	p.now = Micros(now.Val().UnixMicro())
	return get.Val(), Millis(life.Val().Milliseconds())
}

// onServer is what is to stand under the key.
func (w *twin) onServer(hash uint64) string {
	if w.what == garbled {
		return w.raw
	}
	e := w.Entry
	e.Hash = hash
	return e.wire()
}

// elapse lets d pass on the server, which has a clock of its own: what is there is moved
// into the past, or for a clock that steps back, ahead.
func (p *pair) elapse(d time.Duration) {
	p.t.Helper()
	p.note("%v pass", d)
	by := Millis(d.Milliseconds())
	for i := range p.starts {
		p.starts[i] = max(0, p.starts[i]-by.micros())
	}
	if p.what != present || p.until-by-p.now.millis() <= margin {
		p.rig.remove()
		p.twin.remove()
		return
	}
	for _, at := range []*Millis{&p.Fresh, &p.Stale, &p.IfError, &p.HoldDown, &p.RetryAfter, &p.LeaseUntil, &p.until} {
		*at = moved(*at, by)
	}
	p.Version, p.Start = moved(p.Version, by.micros()), moved(p.Start, by.micros())
	p.write()
}

func moved[T Millis | Micros](at, by T) T {
	if at == 0 {
		return 0
	}
	return at - by
}

// write puts the twin's entry under the key.
func (p *pair) write() {
	p.t.Helper()
	p.putRaw(p.onServer(p.key.Hash), time.Duration(p.until-p.rig.now().millis())*time.Millisecond)
}

// plant puts something there that no script has made: damaged, another key's, or any entry.
func (p *pair) plant() {
	p.t.Helper()
	p.until = p.now.millis() + 600_000
	other := Entry{Header: Header{Kind: KindValue, Hash: p.key.Hash + 1, Fresh: p.now.millis() + 1000}}
	whole := Entry{Header: Header{Kind: KindValue, Hash: p.key.Hash, Body: 5}, Payload: "whole"}.wire()
	switch p.rand.IntN(4) {
	case 0:
		p.twin.remove()
		p.what, p.twin.raw, p.until = garbled, pick(p, []string{"x", other.wire(), whole[:len(whole)-1]}), p.now.millis()+600_000
	default:
		p.set(p.anyEntry(), p.now.millis()+600_000)
	}
	p.note("plant %+v", p.Entry)
	p.write()
}

func (p *pair) anyEntry() Entry {
	now := p.now.millis()
	at := func() Millis { return pick(p, []Millis{0, now - 1000, now + 1000, now + 30_000}) }
	h := Header{Kind: pick(p, []Kind{KindValue, KindValue, KindNotFound, KindFailed, KindLease, KindPass}), Codec: 'j', Cost: 7,
		Identity: Identity{pick(p, []Micros{0, p.now - 1000, p.now + 900_000, p.now + 5_000_000}), pick(p, tokens)},
		Row:      p.row(), HoldDown: at(), RetryAfter: at(), Failures: pick(p, []int{0, 1, 4, 254, 255})}
	h.Fresh = at()
	h.Stale = max(h.Fresh, at())
	h.IfError = max(h.Stale, at())
	if p.rand.IntN(2) == 0 {
		h.Token, h.Start, h.LeaseUntil = pick(p, tokens), pick(p, []Micros{p.now - 1000, p.now + 900_000, p.now + 5_000_000}), at()
		h.Waiters = p.rand.IntN(2) == 0
	}
	e := Entry{Header: h}
	switch {
	case h.Kind == KindFailed:
		e.Message, e.Variable = "why", 3
	case h.Kind == KindNotFound:
		e.Carried, e.Variable = "under", 5
	case h.Kind == KindValue:
		e.Carried, e.Variable, e.Payload, e.Body = "under", 5, "v0", 2
	}
	return e
}

var tokens = []string{token("A"), token("B"), token("C"), ""}

func (p *pair) row() uint64 { return pick(p, []uint64{0, 0, 1, 2}) }

// onWire is a token as an argument.
func onWire(token string) string {
	if token == "" {
		return noToken
	}
	return token
}
