package rebuild

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Kind is what an entry holds.
type Kind byte

const (
	KindValue    Kind = 'V' // a value: its payload follows
	KindNotFound Kind = 'N' // the record does not exist
	KindFailed   Kind = 'E' // no value, and the last load failed
	KindLease    Kind = 'L' // no value: only a lease, or a hold-down
	KindPass     Kind = 'X' // the value may not be stored: load without a lease
)

// Micros and Millis are instants on the Redis server's clock, since 1970.
type (
	Micros int64
	Millis int64
)

// Identity tells one stored value from every other of its key. Only a commit changes it.
type Identity struct {
	Version Micros // the start of the lease under which the value was loaded
	Writer  string // the token of that lease
}

// Header is the fixed part of an entry. A zero instant is long past; an empty token means
// that there is none.
type Header struct {
	Kind        Kind
	Codec       byte
	Compression byte
	Identity
	Row  uint64        // row version given by the writer; 0: none
	Hash uint64        // of the key's text, so that a reply for another key is noticed
	Cost time.Duration // how long the load took

	Fresh    Millis // until then the value is fresh
	Stale    Millis // until then it is served while one node refreshes it
	IfError  Millis // until then it is served if the refresh fails
	HoldDown Millis // until then a loaded value may come from a lagging replica

	RetryAfter Millis // until then a failed load is not repeated
	Failures   int    // failed loads in a row

	Token      string // the lease is (Token, Start)
	Start      Micros
	LeaseUntil Millis
	Waiters    bool // somebody wants to be woken when the lease ends

	Variable, Body int // sizes of the two parts that follow
}

var (
	errNoEntry  = errors.New("not an entry of this format")
	errWrongKey = errors.New("the entry belongs to another key")
)

// hashText is how the hash of a key's text stands in the header and in the scripts' calls.
func hashText(hash uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], hash)
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// format writes h as it stands on the wire.
func (h Header) format() []byte {
	b := make([]byte, 0, HeaderSize)
	b = append(b, magic...)
	b = append(b, byte(h.Kind), printable(h.Codec), printable(h.Compression))
	b = appendHex(b, fVersion, int64(h.Version))
	b = appendToken(b, h.Writer)
	b = fmt.Appendf(b, "%016x", h.Row)
	b = append(b, hashText(h.Hash)...)
	b = appendHex(b, fCost, min(h.Cost.Microseconds(), 1<<28-1))
	for i, w := range [...]Millis{h.Fresh, h.Stale, h.IfError, h.HoldDown, h.RetryAfter} {
		b = appendHex(b, fFresh+i, int64(w))
	}
	b = appendHex(b, fFailures, int64(min(h.Failures, math.MaxUint8)))
	b = appendToken(b, h.Token)
	b = appendHex(b, fStart, int64(h.Start))
	b = appendHex(b, fUntil, int64(h.LeaseUntil))
	b = append(b, flag(h.Waiters))
	b = appendHex(b, fVariable, int64(h.Variable))
	return appendHex(b, fBody, int64(h.Body))
}

func appendHex(b []byte, f int, v int64) []byte {
	return fmt.Appendf(b, "%0*x", fields[f].width, v)
}

func appendToken(b []byte, token string) []byte {
	if token == "" {
		token = noToken
	}
	return append(b, token...)
}

func printable(b byte) byte {
	if b == 0 {
		return '-'
	}
	return b
}

func flag(on bool) byte {
	if on {
		return '1'
	}
	return '0'
}

// parseHeader reads the fixed part of the entry of the key with this hash.
func parseHeader(s string, hash uint64) (Header, error) {
	if len(s) < HeaderSize || s[:len(magic)] != magic {
		return Header{}, errNoEntry
	}
	p := parser{s: s}
	h := Header{
		Kind:        Kind(p.byte(fKind)),
		Codec:       p.byte(fCodec),
		Compression: p.byte(fCompression),
		Identity:    Identity{Micros(p.hex(fVersion)), p.token(fWriter)},
		Row:         p.hex(fRow),
		Cost:        time.Duration(p.hex(fCost)) * time.Microsecond,
		Fresh:       Millis(p.hex(fFresh)),
		Stale:       Millis(p.hex(fStale)),
		IfError:     Millis(p.hex(fIfError)),
		HoldDown:    Millis(p.hex(fHoldDown)),
		RetryAfter:  Millis(p.hex(fRetry)),
		Failures:    int(p.hex(fFailures)),
		Token:       p.token(fToken),
		Start:       Micros(p.hex(fStart)),
		LeaseUntil:  Millis(p.hex(fUntil)),
		Waiters:     p.byte(fWaiters) == '1',
		Variable:    int(p.hex(fVariable)),
		Body:        int(p.hex(fBody)),
		Hash:        hash,
	}
	switch {
	case p.bad || !h.Kind.known() || h.Body < 0: // a length beyond a 32-bit int
		return Header{}, errNoEntry
	case p.field(fHash) != hashText(hash):
		return Header{}, errWrongKey
	}
	return h, nil
}

func (k Kind) known() bool {
	switch k {
	case KindValue, KindNotFound, KindFailed, KindLease, KindPass:
		return true
	}
	return false
}

// parser reads fields and remembers whether one was not what it should be.
type parser struct {
	s   string
	bad bool
}

func (p *parser) field(f int) string { return p.s[offsets[f]:offsets[f+1]] }

func (p *parser) byte(f int) byte { return p.s[offsets[f]] }

func (p *parser) hex(f int) uint64 {
	v, err := strconv.ParseUint(p.field(f), 16, 64)
	p.bad = p.bad || err != nil
	return v
}

func (p *parser) token(f int) string {
	if t := p.field(f); t != noToken {
		return t
	}
	return ""
}

// Entry is what stands under a key: the header and what follows it. Variable and Body are
// empty where only the header was read.
type Entry struct {
	Header
	Message string // of the failure
	Carried string // the generations that a value, or "not found", was loaded under
	Payload string
}

// parseEntry reads a whole entry. A length that does not agree with the header means that
// the entry was cut, or is not ours.
func parseEntry(s string, hash uint64) (Entry, error) {
	h, err := parseHeader(s, hash)
	if err != nil {
		return Entry{}, err
	}
	if len(s) != HeaderSize+h.Variable+h.Body {
		return Entry{}, errNoEntry
	}
	return h.with(s[HeaderSize:]), nil
}

// with joins the header and the parts that follow it.
func (h Header) with(rest string) Entry {
	if len(rest) != h.Variable+h.Body {
		return Entry{Header: h}
	}
	e := Entry{Header: h, Payload: rest[h.Variable:]}
	if h.Kind == KindFailed {
		e.Message = rest[:h.Variable]
	} else {
		e.Carried = rest[:h.Variable]
	}
	return e
}
