package rebuild

import (
	"fmt"
	"strings"

	"github.com/levee-cache/levee/lock"
)

// The fields of the header, in their order on the wire. Those that are written together
// stand together: identity, windows, failure, lease.
const (
	fMagic = iota
	fKind
	fCodec
	fCompression
	fVersion
	fWriter
	fRow
	fHash
	fCost
	fFresh
	fStale
	fIfError
	fHoldDown
	fRetry
	fFailures
	fToken
	fStart
	fUntil
	fWaiters
	fVariable
	fBody
	fieldCount
)

// fields is the wire format: the one table that knows names and widths. Offsets follow from
// it, here and in the scripts.
var fields = [fieldCount]struct {
	name  string
	width int
}{
	fMagic:       {"magic", len(magic)},
	fKind:        {"kind", 1},
	fCodec:       {"codec", 1},
	fCompression: {"compression", 1},
	fVersion:     {"version", 13}, // µs, hex: good until 2112
	fWriter:      {"writer", lock.TokenSize},
	fRow:         {"row", 16},
	fHash:        {"hash", 11},
	fCost:        {"cost", 7}, // µs, hex
	fFresh:       {"fresh", 11},
	fStale:       {"stale", 11},
	fIfError:     {"iferror", 11},
	fHoldDown:    {"holddown", 11}, // ms, hex: good until 2527
	fRetry:       {"retry", 11},
	fFailures:    {"failures", 2},
	fToken:       {"token", lock.TokenSize},
	fStart:       {"start", 13},
	fUntil:       {"until", 11},
	fWaiters:     {"waiters", 1},
	fVariable:    {"variable", 4},
	fBody:        {"body", 8},
}

const (
	magic   = "LVE1" // with the number of the format
	noToken = "......................"
)

// offsets has one more element than fields: the size of the header.
var offsets = func() (o [fieldCount + 1]int) {
	for i, f := range fields {
		o[i+1] = o[i] + f.width
	}
	return o
}()

// HeaderSize is the length of the fixed part of an entry.
var HeaderSize = offsets[fieldCount]

// luaFields tells the scripts where each field is: from and to as string.sub counts them,
// and the offset as SETRANGE does.
func luaFields() string {
	var b strings.Builder
	fmt.Fprintf(&b, "local SIZE, MAGIC, NOTOKEN = %d, '%s', '%s'\n", HeaderSize, magic, noToken)
	b.WriteString("local FROM, TO, AT, WIDTH = {}, {}, {}, {}\n")
	for i, f := range fields {
		fmt.Fprintf(&b, "FROM['%s'], TO['%s'], AT['%s'], WIDTH['%s'] = %d, %d, %d, %d\n",
			f.name, f.name, f.name, f.name, offsets[i]+1, offsets[i+1], offsets[i], f.width)
	}
	return b.String()
}
