package rebuild

import (
	"fmt"
	"regexp"
	"strconv"

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

// fieldName is a field in a script: @field is where it is, from and to as string.sub counts, $field
// its offset as SETRANGE does, &field the format that writes it.
var fieldName = regexp.MustCompile(`[@$&][a-z]+`)

// placed puts the places of the fields into a script, as numbers: tables that the script would
// have to fill at each call cost it a third of its time.
func placed(script string) string {
	return fieldName.ReplaceAllStringFunc(script, func(m string) string {
		for i, f := range fields {
			if f.name != m[1:] {
				continue
			}
			switch m[0] {
			case '@':
				return fmt.Sprintf("%d, %d", offsets[i]+1, offsets[i+1])
			case '$':
				return strconv.Itoa(offsets[i])
			}
			return fmt.Sprintf("'%%0%dx'", f.width)
		}
		panic("bug: a script names the field " + m)
	})
}
