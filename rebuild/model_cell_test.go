package rebuild

import (
	"slices"

	"github.com/levee-cache/levee/internal/link"
)

// cell is an entry with instants cut down to what there is to tell of them: zero is past.
type cell struct {
	what, kind, value, version, writer, row u8
	fresh, stale, ifError, holdDown, retry  u8
	failures                                u8
	token, start, until, waiters            u8
}

// Instants in a cell count from the model's clock, which stands still in milliseconds. What a hold-down
// bounds ends before what it does not. Starts and versions are ranks, long ago.
const (
	overSince  u8 = 1 // a hold-down that has ended since the lease began
	atHoldDown u8 = 5
	atFresh    u8 = 10
	atStale    u8 = 20
	atIfError  u8 = 30
	atRetry    u8 = 40
	atLease    u8 = 50
	forEver    u8 = 255
)

const modelClock = Micros(10_000_000)

func ahead(at u8) Millis {
	switch at {
	case 0:
		return 0
	case overSince:
		return Millis(at)
	}
	return modelClock.millis() + Millis(at)
}

// rank is the number that a start has in a cell.
func rank(start Micros) u8 {
	if start >= modelClock {
		start -= modelClock
	}
	return u8(start)
}

var tokenNames = func() (names [32]string) {
	for i := 1; i < len(names); i++ {
		names[i] = token(string(rune('@' + i)))
	}
	return names
}()

func tokenNumber(name string) u8 {
	if name == "" {
		return 0
	}
	return name[0] - '@'
}

var payloads = [...]string{"0", "1", "2", "3", "4", "5", "6", "7"}

func (c *cell) header() Header {
	return Header{
		Kind: Kind(c.kind), Identity: Identity{Micros(c.version), tokenNames[c.writer]}, Row: uint64(c.row),
		Fresh: ahead(c.fresh), Stale: ahead(c.stale), IfError: ahead(c.ifError), HoldDown: ahead(c.holdDown),
		RetryAfter: ahead(c.retry), Failures: int(c.failures),
		Token: tokenNames[c.token], Start: Micros(c.start), LeaseUntil: ahead(c.until), Waiters: c.waiters != 0,
	}
}

func (c *cell) twin(without guards) twin {
	if c.what == 0 {
		return twin{without: without}
	}
	return twin{what: present, Entry: Entry{Header: c.header(), Payload: payloads[c.value]}, until: ahead(forEver), without: without}
}

func cellOf(w *twin) cell {
	if w.what != present {
		return cell{}
	}
	c := headerCell(&w.Header)
	if w.Payload != "" && w.Kind == KindValue {
		c.value = w.Payload[0] - '0'
	}
	return c
}

func headerCell(h *Header) cell {
	c := cell{
		what: 1, kind: u8(h.Kind), version: rank(h.Version), writer: tokenNumber(h.Writer), row: u8(h.Row),
		fresh: window8(h.Fresh, atFresh), stale: window8(h.Stale, atStale), ifError: window8(h.IfError, atIfError),
		holdDown: max(window8(h.HoldDown, atHoldDown), u8(min(h.HoldDown, Millis(overSince)))), retry: window8(h.RetryAfter, atRetry), failures: u8(min(h.Failures, 3)),
		token: tokenNumber(h.Token), start: rank(h.Start), until: window8(h.LeaseUntil, atLease),
	}
	if h.Waiters {
		c.waiters = 1
	}
	return c
}

// window8 is past, bounded by a hold-down, or the usual.
func window8(m Millis, usual u8) u8 {
	switch now := modelClock.millis(); {
	case m <= now:
		return 0
	case m <= now+Millis(atHoldDown):
		return atHoldDown
	}
	return usual
}

func (c *cell) view(us Micros) View {
	if c.what == 0 {
		return View{}
	}
	return c.header().view(us)
}

// leased tells whether somebody holds the lease.
func (c *cell) leased() bool { return c.what != 0 && c.token != 0 && c.until != 0 }

// idle tells whether the entry's lifetime may be over.
func (c *cell) idle() bool {
	return c.what != 0 && max(c.fresh, c.stale, c.ifError, c.retry) == 0 && c.holdDown <= overSince && !c.leased()
}

// at judges a copy as production does.
func (c *localCopy) at() State {
	s := Stamp{Kind: KindValue, Fresh: link.Instant(c.fresh), Stale: link.Instant(c.stale), IfError: link.Instant(c.ifError)}
	return s.At(0)
}

// statuses are numbered for an answer.
var statuses = []Status{"", statusAbsent, statusUnreadable, statusLate, statusFresh, statusIdle, statusHeld, statusBackoff, statusPass,
	statusLeased, statusCommitted, statusRefused, statusOlder, statusFailed, statusSeized, statusLost, statusPassed, statusReleased,
	statusDeleted, statusExpired, statusGone}

func statusNumber(s Status) u8 { return u8(slices.Index(statuses, s)) }
