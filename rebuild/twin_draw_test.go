package rebuild

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// drawn is one call of a script, valid or perverse, in both languages.
type drawn struct {
	name   string
	script *redis.Script
	args   []any
	twin   func(*twin, Micros) told
}

// draw chooses the next call.
func (p *pair) draw() drawn {
	switch n := p.rand.IntN(100); {
	case n < 35:
		return p.drawAcquire()
	case n < 58:
		return p.drawCommit()
	case n < 67:
		return p.drawFail()
	case n < 75:
		return p.drawSeize()
	case n < 80:
		return p.drawInvalidation("delete", scripts.remove, (*twin).delete)
	case n < 86:
		return p.drawInvalidation("expire", scripts.expire, (*twin).expire)
	default:
		return p.drawHolder()
	}
}

// holder is the lease that is there, or one that was, or one that nobody had.
func (p *pair) holder() (token string, start Micros) {
	if p.rand.IntN(4) > 0 {
		return p.Token, p.Start
	}
	return pick(p, tokens), pick(p, append([]Micros{0, p.Start, p.Version, p.now}, p.starts...))
}

func (p *pair) length() Millis { return pick(p, []Millis{1, 5_000, 30_000, 300_000}) }

func (p *pair) notAfter() Micros { return pick(p, []Micros{0, 0, 0, p.now + 100_000_000, p.now - 1}) }

func (p *pair) holdDown() Millis { return pick(p, []Millis{0, 0, 15_000, 200_000}) }

func (p *pair) drawAcquire() drawn {
	a := acquireArgs{
		token: pick(p, tokens[:3]), lease: p.length(), notAfter: p.notAfter(),
		have: pick(p, []Identity{{}, p.Identity, {p.Version, token("B")}, {p.Version - 1, p.Writer}}),
		bar:  pick(p, []Micros{0, 0, 0, 1, p.Version, p.Version + 1, p.now, farthest}),
		mode: pick(p, []Mode{Try, Try, Try, Look, Wait}),
	}
	return drawn{"acquire", scripts.acquire,
		[]any{a.token, int64(a.lease), a.have.text(), int64(a.bar), string(a.mode), int64(a.notAfter)},
		func(w *twin, us Micros) told { return w.acquire(us, a) }}
}

func (p *pair) drawCommit() drawn {
	token, start := p.holder()
	if p.rand.IntN(8) == 0 {
		token, start = p.Writer, p.Version // of the last one: repeated
	}
	fresh := p.length()
	a := commitArgs{token: token, start: start, fresh: fresh, stale: fresh + p.length(), ifError: fresh + p.length(),
		row: p.row(), setter: p.rand.IntN(4) == 0, keep: p.rand.IntN(5) == 0}
	a.anew = !a.setter && p.rand.IntN(4) == 0
	a.holdDown = pick(p, []Millis{0, 0, p.now.millis(), (p.now + Micros(p.rand.IntN(5_000_000))).millis()})
	a.entry = p.valueOf(a)
	d := draft{fresh: duration(a.fresh), stale: duration(a.stale), ifError: duration(a.ifError), holdDown: a.holdDown,
		content: content{row: a.row, keep: a.keep, setter: a.setter, anew: a.anew}, text: []byte(a.entry.wire())}
	policy := testPolicy()
	policy.Backoff = duration(p.length())
	args := d.args(onWire(token), start, policy)
	a.pause = pauseArgs{Millis(millis(policy.Backoff)), Millis(millis(backoffGrowth * policy.Backoff)), args[len(args)-2].(int)}
	return drawn{"commit", scripts.commit, args,
		func(w *twin, us Micros) told { return w.commit(us, a) }}
}

// valueOf is an entry as a node makes it: with keep it is a header only.
func (p *pair) valueOf(a commitArgs) Entry {
	e := Entry{Header: Header{Kind: pick(p, []Kind{KindValue, KindValue, KindNotFound}), Codec: 's', Identity: Identity{a.start, a.token},
		Row: a.row, Hash: p.key.Hash, Cost: pick(p, []time.Duration{0, time.Second})}}
	if e.Kind == KindValue && !a.keep {
		e.Payload = pick(p, []string{"", "v1", "a longer value"})
		e.Body = len(e.Payload)
	}
	if !a.keep {
		e.Carried, e.Variable = "here", 4
	}
	return e
}

func duration(m Millis) time.Duration { return time.Duration(m) * time.Millisecond }

func (p *pair) drawFail() drawn {
	token, start := p.holder()
	backoff := p.length()
	a := failArgs{token: token, start: start, pause: pauseArgs{backoff, 10 * backoff, pick(p, []int{1000, 812})},
		message: pick(p, []string{"", "no answer"})}
	return drawn{"fail", scripts.fail, []any{onWire(token), int64(start), int64(a.pause.backoff), int64(a.pause.longest), a.pause.jitter, a.message},
		func(w *twin, us Micros) told { return w.fail(us, a) }}
}

func (p *pair) drawSeize() drawn {
	a := seizeArgs{token: pick(p, tokens[:3]), lease: p.length(), row: p.row(), holdDown: p.holdDown(), notAfter: p.notAfter()}
	return drawn{"seize", scripts.seize, []any{a.token, int64(a.lease), rowText(a.row), int64(a.holdDown), int64(a.notAfter)},
		func(w *twin, us Micros) told { return w.seize(us, a) }}
}

func (p *pair) drawInvalidation(name string, script *redis.Script, f func(*twin, Micros, Millis) told) drawn {
	d := p.holdDown()
	return drawn{name, script, []any{int64(d)}, func(w *twin, us Micros) told { return f(w, us, d) }}
}

// drawHolder is what else a holder does.
func (p *pair) drawHolder() drawn {
	token, start := p.holder()
	d := p.length()
	switch p.rand.IntN(4) {
	case 0:
		return drawn{"renew", scripts.renew, []any{onWire(token), int64(start), int64(d)},
			func(w *twin, us Micros) told { return w.renew(us, token, start, d) }}
	case 1:
		return drawn{"pass", scripts.pass, []any{onWire(token), int64(start), int64(d)},
			func(w *twin, us Micros) told { return w.pass(us, token, start, d) }}
	}
	start, except := pick(p, []Micros{0, start}), pick(p, []Micros{0, 0, p.Start})
	return drawn{"release", scripts.release, []any{onWire(token), int64(start), int64(except)},
		func(w *twin, us Micros) told { return w.release(us, token, start, except) }}
}
