package lock

import (
	"fmt"
	"regexp"
	"strconv"
)

// The fields of a lock, in their order on the wire, and behind them those of an entry of its
// queue, one entry a waiting process. Those that are written together stand together.
const (
	fMagic = iota
	fReleased
	fState
	fToken
	fFence
	fSince
	fUntil
	fLease
	fHolder
	fieldCount
)

// field is a place in a text of fixed width.
type field struct {
	name  string
	width int
}

// fields is the wire format of a lock: the one table that knows names and widths.
var fields = []field{
	fMagic:    {"magic", len(magic)},
	fReleased: {"released", TokenSize}, // the token that gave the lock back last
	fState:    {"state", 1},
	fToken:    {"token", TokenSize},
	fFence:    {"fence", 13}, // µs, hex: good until 2112
	fSince:    {"since", 11}, // ms, hex: good until 2527
	fUntil:    {"until", 11},
	fLease:    {"lease", 8}, // ms, hex
	fHolder:   {"holder", holderSize},
}

// The fields of an entry of the queue.
const (
	qWaiter = iota
	qInbox
	qAlive
	qName
)

// queueFields is the wire format of an entry of the queue.
var queueFields = []field{
	qWaiter: {"waiter", TokenSize},
	qInbox:  {"inbox", TokenSize},
	qAlive:  {"alive", 11}, // ms, hex: until then it counts as waiting
	qName:   {"name", holderSize},
}

const (
	magic     = "LVK1" // with the number of the format
	magicDone = "LVO1" // of what a Once has run
	noToken   = "......................"
)

// States of a lock.
const (
	stateHeld    = "H" // until its lease ends
	stateGranted = "G" // to a waiter that has not been heard of since
	stateFree    = "F" // what is left is the memory of fence and last release
)

var (
	lockOffsets, entryOffsets = offsetsOf(fields), offsetsOf(queueFields)

	lockSize  = lockOffsets[len(fields)]
	entrySize = entryOffsets[len(queueFields)]
)

// offsetsOf has one more element than the table: the size of the whole.
func offsetsOf(table []field) []int {
	o := make([]int, len(table)+1)
	for i, f := range table {
		o[i+1] = o[i] + f.width
	}
	return o
}

// fieldName is a field in a script: @field is where it is, from and to as string.sub counts,
// $field its offset as SETRANGE does, &field the format that writes it.
var fieldName = regexp.MustCompile(`[@$&][a-z]+`)

// placed puts the places of the fields into a script, as numbers.
func placed(script string) string {
	return fieldName.ReplaceAllStringFunc(script, func(m string) string {
		f, offset := named(m[1:])
		switch m[0] {
		case '@':
			return fmt.Sprintf("%d, %d", offset+1, offset+f.width)
		case '$':
			return strconv.Itoa(offset)
		}
		return fmt.Sprintf("'%%0%dx'", f.width)
	})
}

// named finds a field by its name.
func named(name string) (f field, offset int) {
	for i, f := range fields {
		if f.name == name {
			return f, lockOffsets[i]
		}
	}
	for i, f := range queueFields {
		if f.name == name {
			return f, entryOffsets[i]
		}
	}
	panic("bug: a script names the field " + name)
}
