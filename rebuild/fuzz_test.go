package rebuild

import (
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/internal/redistest"
)

// FuzzParseEntry: whatever stands in Redis, reading it neither panics nor makes up bytes, and
// what reads as an entry is written again as one that reads the same.
func FuzzParseEntry(f *testing.F) {
	for name := range golden {
		e := goldenEntry(name)
		f.Add(e.wire(), e.Hash)
	}
	f.Fuzz(func(t *testing.T, s string, hash uint64) {
		e, err := parseEntry(s, hash)
		if err != nil {
			equal(t, "what came with the error", e, Entry{})
			return
		}
		equal(t, "size", HeaderSize+len(e.Message)+len(e.Payload), len(s))
		equal(t, "parts", e.Message+e.Payload, s[HeaderSize:])
		e.Codec, e.Compression = printable(e.Codec), printable(e.Compression) // zero is written as '-'
		again, err := parseEntry(e.wire(), hash)
		must(t, err)
		equal(t, "entry", again, e)
		e.view(Micros(hash >> 12)) // judges whatever the fields say
	})
}

func TestALengthThatIsNotThereCostsNoMemory(t *testing.T) {
	h := Header{Kind: KindValue, Variable: 1<<16 - 1, Body: 1<<32 - 1}
	hostile := string(h.format()) + strings.Repeat("x", 100)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 100 {
		if _, err := parseEntry(hostile, 0); err == nil {
			t.Fatal("a length that is not there was believed")
		}
	}
	runtime.ReadMemStats(&after)
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 1<<20 {
		t.Errorf("100 entries took %d bytes", spent)
	}
}

// FuzzHeard: a message of any kind and content is obeyed, or noticed as one that could not be. What a node
// holds is left alone only by what is about something else.
func FuzzHeard(f *testing.F) {
	for _, kind := range []byte{keyMessage, hardMessage, softMessage, 0, 'K', 0xff} {
		for _, text := range []string{"k", "red", "", "other", "\xff\x00"} {
			f.Add(kind, text, int64(0))
		}
		f.Add(kind, "red", int64(math.MinInt64))
		f.Add(kind, "red", int64(math.MaxInt64))
		f.Add(kind, "", int64(-1))
		f.Add(kind, "k", int64(1))
	}
	f.Fuzz(func(t *testing.T, kind byte, text string, number int64) {
		inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
			k, db := keyOf("k"), newDatabase("v1")
			db.answer = func(_ Copy, _ time.Duration, o *Outcome) { o.Tags = []string{"red"} }
			n := newNode(t, b, db, telling)
			time.Sleep(time.Second)
			equal(t, "value", n.get(k).value(), "v1")
			time.Sleep(time.Millisecond)
			n.heard(link.Message{Kind: kind, Text: text, Number: number})
			equal(t, "what is left", n.left(k), leftBy(kind, text))
			gaps, _ := n.Hearing()
			equal(t, "it is a gap", gaps == 1, !strings.ContainsRune("khs", rune(kind)))
			for range 3 {
				equal(t, "value after it", n.get(k).value(), "v1")
			}
		})
	})
}

// left is what a node has of k for those who ask for it now.
func (n *testNode) left(k Key) string {
	c := n.shelf.Lookup(k)
	switch {
	case c == nil:
		return "nothing"
	case !n.Believes(c.Meta(), n.clock.Now()):
		return "something in doubt"
	case c.Meta().At(n.clock.Now()) != Fresh:
		return "nothing fresh"
	}
	return "all"
}

// leftBy is what a message leaves of the key k, which is tagged red.
func leftBy(kind byte, text string) string {
	switch {
	case kind == keyMessage && text == "k", (kind == hardMessage || kind == softMessage) && text == "":
		return "nothing"
	case (kind == hardMessage || kind == softMessage) && text == "red":
		return "nothing fresh"
	case kind == keyMessage || kind == hardMessage || kind == softMessage:
		return "all"
	}
	return "something in doubt"
}
