package redistest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Match chooses commands. It must be safe for concurrent use.
type Match func(redis.Cmder) bool

func (m Match) any(cmds []redis.Cmder) bool { return slices.ContainsFunc(cmds, m) }

// Any matches every command.
func Any(redis.Cmder) bool { return true }

// Name matches commands by name, in lower case: Name("get", "evalsha").
func Name(names ...string) Match {
	return func(c redis.Cmder) bool { return slices.Contains(names, c.Name()) }
}

// Script matches the runs of one script, by EVALSHA and by EVAL.
func Script(s *redis.Script) Match {
	run := Name("evalsha", "evalsha_ro", "eval", "eval_ro")
	return func(c redis.Cmder) bool {
		return run(c) && len(c.Args()) > 1 && scriptHash(c) == s.Hash()
	}
}

// scriptHash is the hash of the script that an EVAL or EVALSHA runs.
func scriptHash(c redis.Cmder) string {
	text := fmt.Sprint(c.Args()[1])
	if strings.HasPrefix(c.Name(), "evalsha") {
		return text
	}
	return redis.NewScript(text).Hash()
}

// Contains matches commands with an argument that contains text, such as a key
// or a token.
func Contains(text string) Match {
	return func(c redis.Cmder) bool {
		return slices.ContainsFunc(c.Args(), func(a any) bool { return strings.Contains(argument(a), text) })
	}
}

func argument(a any) string {
	if b, ok := a.([]byte); ok {
		return string(b)
	}
	return fmt.Sprint(a)
}

// All matches what every one of ms matches.
func All(ms ...Match) Match {
	return func(c redis.Cmder) bool {
		return !slices.ContainsFunc(ms, func(m Match) bool { return !m(c) })
	}
}
