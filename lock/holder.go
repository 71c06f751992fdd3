package lock

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Holder says who has a lock, in words for people.
type Holder struct {
	Host  string
	PID   int
	Label string // by [WithLabel]
}

// String is the form that stands in Redis: host/pid, and the label behind it.
func (h Holder) String() string {
	if h == (Holder{}) {
		return "unknown"
	}
	return strings.TrimSuffix(fmt.Sprintf("%s/%d %s", h.Host, h.PID, h.Label), " ")
}

// holderSize is the room for it in Redis, in bytes; what is longer is cut.
const holderSize = 64

// us is this process.
var us = func() Holder {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return Holder{Host: host, PID: os.Getpid()}
}()

// holderOf is the text of this process with a label.
func holderOf(label string) string {
	return holderText(Holder{us.Host, us.PID, label}.String())
}

// holderText cuts and fills text to the size of the field, and keeps it printable.
func holderText(text string) string {
	printable := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
	cut := min(len(printable), holderSize)
	for cut > 0 && cut < len(printable) && !utf8.RuneStart(printable[cut]) {
		cut--
	}
	return printable[:cut] + strings.Repeat(" ", holderSize-cut)
}

// readHolder reads what holderOf wrote; of a foreign text it makes a label.
func readHolder(text string) Holder {
	text = strings.TrimRight(text, " ")
	who, label, _ := strings.Cut(text, " ")
	slash := strings.LastIndexByte(who, '/')
	if slash < 0 {
		return Holder{Label: text}
	}
	pid, err := strconv.Atoi(who[slash+1:])
	if err != nil {
		return Holder{Label: text}
	}
	return Holder{Host: who[:slash], PID: pid, Label: label}
}
