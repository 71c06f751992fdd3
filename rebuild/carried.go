package rebuild

import (
	"fmt"
	"strconv"
)

// carried is what an entry says of what it was loaded under: the namespace's generation, and those of
// its tags. It is the variable part of a value, and of "not found".
type carried struct {
	space int64
	tags  []carriedTag
}

type carriedTag struct {
	text       string
	hard, soft int64
}

const (
	numberWidth = 13
	lengthWidth = 4
)

// carriedText is what goes into the entry.
func carriedText(space int64, marks []mark) []byte {
	b := appendNumber(nil, space, numberWidth)
	for _, m := range marks {
		b = appendNumber(b, m.hard, numberWidth)
		b = appendNumber(b, m.soft, numberWidth)
		b = appendNumber(b, int64(len(m.of.tag)), lengthWidth)
		b = append(b, m.of.tag...)
	}
	return b
}

func appendNumber(b []byte, n int64, width int) []byte {
	text := strconv.FormatInt(max(n, 0), 16)
	for range width - len(text) {
		b = append(b, '0')
	}
	return append(b, text...)
}

// parseCarried reads it; ok is false for what was not written by carriedText.
func parseCarried(s string) (c carried, ok bool) {
	p := variableParser{rest: s}
	c.space = p.number(numberWidth)
	for p.rest != "" && !p.bad {
		t := carriedTag{hard: p.number(numberWidth), soft: p.number(numberWidth)}
		t.text = p.take(int(p.number(lengthWidth)))
		c.tags = append(c.tags, t)
	}
	return c, !p.bad
}

// variableParser takes one part after the other, and remembers whether one was not there.
type variableParser struct {
	rest string
	bad  bool
}

func (p *variableParser) take(n int) (part string) {
	if n < 0 || n > len(p.rest) {
		p.bad = true
		return ""
	}
	part, p.rest = p.rest[:n], p.rest[n:]
	return part
}

func (p *variableParser) number(width int) int64 {
	n, err := strconv.ParseInt(p.take(width), 16, 64)
	p.bad = p.bad || err != nil || n < 0
	return n
}

const (
	mostMarks  = 64
	longestTag = 256
)

// CheckTags says what is wrong with the tags of one value, or nil.
func CheckTags(tags []string) error {
	if len(tags) > mostMarks {
		return fmt.Errorf("%d tags are more than %d", len(tags), mostMarks)
	}
	for _, t := range tags {
		if t == "" || len(t) > longestTag {
			return fmt.Errorf("tag %q is not between 1 and %d bytes long", t, longestTag)
		}
	}
	return nil
}
