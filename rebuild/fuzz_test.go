package rebuild

import (
	"runtime"
	"strings"
	"testing"
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
