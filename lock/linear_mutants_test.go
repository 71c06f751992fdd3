package lock

import (
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
)

// TestT02AScriptThatIsWrongIsRejected: the judge of histories is itself judged by scripts that each lack one guard.
func TestT02AScriptThatIsWrongIsRejected(t *testing.T) {
	for situation, s := range map[string]trio{
		"anybody may release": lacking(t, "release", " and sub(raw, @token) == token", "", "if l.token == token then return", "if true then return"),
		"who has not the lock ends it, and is told that he does not": lacking(t, "release",
			"local at = place(l.queue, token)\n", "local at = place(l.queue, token)\nif l.held and l.token ~= token then free(l) return {'gone', us, 0} end\n"),
		"a fence knows no earlier one":           lacking(t, "acquire", "math.max(before + 1, us)", "us", "math.max(l.fence + 1, us)", "us"),
		"a fence knows no clock":                 lacking(t, "acquire", "math.max(before + 1, us)", "before + 1", "math.max(l.fence + 1, us)", "l.fence + 1"),
		"who takes over gets the last fence":     lacking(t, "acquire", "math.max(l.fence + 1, us)", "l.fence"),
		"a lock is passed on under the old one":  lacking(t, "release", "math.max(l.fence + 1, us)", "l.fence"),
		"a renewal takes what is free":           lacking(t, "renew", "if l.held and", "if not l.held then own(l, 'H', token, lease, NOBODY) end\nif l.held and"),
		"a renewal revives a lease that ended":   lacking(t, "renew", "if l.held and l.token", "if l.state ~= 'F' and l.token"),
		"anybody may renew":                      lacking(t, "renew", "if l.held and l.token == token", "if l.held"),
		"a lease never ends":                     lacking(t, "acquire", "l.state ~= 'F' and l.ends > ms", "l.state ~= 'F'"),
		"a lease ends at once":                   lacking(t, "acquire", "l.state ~= 'F' and l.ends > ms", "false"),
		"a repeated acquire is busy with itself": lacking(t, "acquire", "if l.held and l.token == token then", "if false then"),
		"what was given back is taken again":     lacking(t, "acquire", "sub(raw, @released) ~= token", "true", "if l.released == token then return", "if false then return"),
		"a late acquire is granted":              lacking(t, "acquire", "us <= tonumber(ARGV[9])", "true", "us > notafter", "false"),
	} {
		t.Run(situation, func(t *testing.T) {
			c := newScene(t, s)
			for i := range 300 {
				c.play(uint64(i))
				if c.judge(time.Second) == porcupine.Illegal {
					t.Logf("history %d", i)
					return
				}
			}
			t.Error("300 histories pass")
		})
	}
}

// lacking is the scripts with parts of one replaced, each of which stands in it once.
func lacking(t *testing.T, name string, parts ...string) trio {
	t.Helper()
	text := textOf(name)
	for i := 0; i < len(parts); i += 2 {
		from, to := placed(parts[i]), placed(parts[i+1])
		equal(t, "parts like "+from, strings.Count(text, from), 1)
		text = strings.Replace(text, from, to, 1)
	}
	s, wrong := genuine, redis.NewScript(text)
	switch name {
	case "acquire":
		s.acquire = wrong
	case "renew":
		s.renew = wrong
	default:
		s.release = wrong
	}
	return s
}
