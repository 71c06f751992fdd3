package cache_test

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// The scripts are told apart by what follows the hash and the channel in their arguments.
func scriptArgs(c redis.Cmder) []any {
	if a := c.Args(); len(a) > 6 && strings.HasPrefix(c.Name(), "eval") {
		return a[6:]
	}
	return nil
}

func isCommit(c redis.Cmder) bool  { return len(scriptArgs(c)) == 13 }
func isRenewal(c redis.Cmder) bool { return len(scriptArgs(c)) == 3 }

// isAcquire matches an acquire that may lease.
func isAcquire(c redis.Cmder) bool {
	a := scriptArgs(c)
	return len(a) == 6 && a[4] == "try"
}

func isLook(c redis.Cmder) bool { a := scriptArgs(c); return len(a) == 6 && a[4] == "look" }

func isFailure(c redis.Cmder) bool {
	return len(scriptArgs(c)) == 6 && !isLook(c) && !isAcquire(c)
}

func isSeizure(c redis.Cmder) bool { return len(scriptArgs(c)) == 5 }

func isDelete(c redis.Cmder) bool { return len(scriptArgs(c)) == 1 }

// isInvalidation matches the scripts of Delete and Expire, and the first step of Set.
func isInvalidation(c redis.Cmder) bool { return isSeizure(c) || isDelete(c) }

func isRead(c redis.Cmder) bool { return c.Name() == "get" || c.Name() == "getrange" || isLook(c) }

// isProbe matches what the breaker counts.
func isProbe(c redis.Cmder) bool { return isRead(c) || isAcquire(c) }

// isEnd matches the change of a generation.
func isEnd(c redis.Cmder) bool { return redistest.Contains("hard")(c) || redistest.Contains("soft")(c) }
