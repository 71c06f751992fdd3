package main

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// All times are since the traffic began.

// answer is what a client got.
type answer struct {
	key, version int64 // version 0: no such user
	node         int
	sent, got    time.Duration // the request, the answer
	age          time.Duration // as the service told it
}

func (a answer) String() string {
	return fmt.Sprintf("user %d, asked of node %d at %v: version %d, %v old", a.key, a.node, a.sent, a.version, a.age)
}

// change is a write that its writer knows to be done.
type change struct {
	key, version int64
	done         time.Duration
	node         int  // that made it, or nobody
	told         bool // Redis has confirmed that the entry is gone
}

const nobody = -1

func (c change) String() string { return fmt.Sprintf("version %d, done at %v", c.version, c.done) }

// span is a time in which a node went on without Redis.
type span struct {
	node     int
	from, to time.Duration
}

// rules are the promises about age.
type rules struct {
	others  time.Duration // how long other nodes may show what was there before a change they could be told of
	foreign time.Duration // the same, of a change that no node made
	windows time.Duration // how old anything may be
	cutOff  []span
}

// clockError is more than the error of an age, which is counted in the time of Redis.
const clockError = 250 * time.Millisecond

// broken lists the answers that were too old.
func (r rules) broken(answers []answer, changes []change) (findings []string) {
	of := map[int64][]change{}
	for _, c := range changes {
		of[c.key] = append(of[c.key], c)
	}
	for _, a := range answers {
		if a.age > r.windows {
			findings = append(findings, fmt.Sprintf("%v: older than anything may be", a))
		}
		for _, c := range of[a.key] {
			if why := r.missed(a, c); c.version > a.version && why != "" {
				findings = append(findings, fmt.Sprintf("%v: does not know of %v, %s", a, c, why))
			}
		}
	}
	return findings
}

// missed tells why a had to know of c, if it had.
func (r rules) missed(a answer, c change) string {
	cut := slices.ContainsFunc(r.cutOff, func(s span) bool {
		return s.node == a.node && c.done < s.to && s.from < a.got
	})
	bound := r.others
	if c.node == nobody {
		bound = r.foreign
	}
	switch {
	case c.done < a.sent-a.age-clockError:
		return "its age is wrong"
	case c.told && c.node == a.node && c.done < a.sent:
		return "made through the same node"
	case c.told && !cut && c.done+bound < a.sent:
		return "which all nodes could know of"
	}
	return ""
}

func TestAnAnswerThatIsTooOldIsFound(t *testing.T) {
	const s = time.Second
	r := rules{others: s, foreign: s, windows: 3 * s, cutOff: []span{{1, 20 * s, 23 * s}}}
	put := change{key: 1, version: 2, done: 10 * s, node: 0, told: true}
	atOutage, unheard := put, put
	atOutage.done, unheard.told = 19500*time.Millisecond, false
	for _, tc := range []struct {
		situation string
		answer    answer
		change    change
		findings  int
	}{
		{"new", answer{key: 1, version: 2, node: 1, sent: 12 * s}, put, 0},
		{"another key", answer{key: 2, version: 1, node: 1, sent: 12 * s, age: 2500 * time.Millisecond}, put, 0},
		{"on the way", answer{key: 1, version: 1, node: 0, sent: 10*s - 1}, put, 0},
		{"the same node", answer{key: 1, version: 1, node: 0, sent: 10*s + 1, age: s}, put, 1},
		{"the same node, not there", answer{key: 1, version: 0, node: 0, sent: 10*s + 1, age: s}, put, 1},
		{"another node", answer{key: 1, version: 1, node: 1, sent: 11 * s, age: s}, put, 0},
		{"another node, late", answer{key: 1, version: 1, node: 1, sent: 11*s + 1, age: 2 * s}, put, 1},
		{"another node, cut off", answer{key: 1, version: 1, node: 1, sent: 21 * s, age: 2 * s}, atOutage, 0},
		{"another node, not the one cut off", answer{key: 1, version: 1, node: 2, sent: 21 * s, age: 2 * s}, atOutage, 1},
		{"not told", answer{key: 1, version: 1, node: 0, sent: 12 * s, age: 2 * s}, unheard, 0},
		{"a wrong age", answer{key: 1, version: 1, node: 0, sent: 12 * s, age: s}, unheard, 1},
		{"past the windows", answer{key: 1, version: 1, node: 0, sent: 13*s + 1, age: 3*s + 1}, unheard, 1},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			tc.answer.got = tc.answer.sent + time.Millisecond
			if got := r.broken([]answer{tc.answer}, []change{tc.change}); len(got) != tc.findings {
				t.Errorf("findings %q, want %d", got, tc.findings)
			}
		})
	}
}
