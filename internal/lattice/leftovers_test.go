package lattice

import (
	"bytes"
	"regexp"
	"testing"
)

// leftForLater is spelt so that this file does not find itself.
var leftForLater = regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`)

func TestNothingIsLeftForLater(t *testing.T) {
	for _, s := range sources(t) {
		for _, at := range leftForLater.FindAllIndex(s.text, -1) {
			line := 1 + bytes.Count(s.text[:at[0]], []byte("\n"))
			t.Errorf("%s:%d: %s", s.name, line, s.text[at[0]:at[1]])
		}
	}
}

func TestWhatIsLeftForLaterIsFound(t *testing.T) {
	for _, text := range []string{"// TO" + "DO: think", "FIX" + "ME", "X" + "XX later"} {
		if !leftForLater.MatchString(text) {
			t.Errorf("%q was not found", text)
		}
	}
	if leftForLater.MatchString("mastodon, fixmes, MAXX" + "XX") {
		t.Error("found within a word")
	}
}
