package lock

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/internal/redistest"
)

// rig is one lock on one server, and the scripts on it, called by hand.
type rig struct {
	t   *testing.T
	c   *redis.Client
	key string
}

// onServers runs f on a real server and on the one that the other tests have in their bubbles:
// what is shown there holds only as far as the two agree.
func onServers(t *testing.T, f func(*rig)) {
	t.Helper()
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		f(&rig{t, redistest.Shared(t).Client(t), "lk:" + redistest.Prefix(t)})
	})
	t.Run("bubble", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f(&rig{t, redistest.Bubble(t).Client(t), "lk:" + redistest.Prefix(t)})
		})
	})
}

// token is a token by a short name.
func token(name string) string {
	return name + strings.Repeat("-", TokenSize-len(name))
}

func (r *rig) do(script *redis.Script, args ...any) answer {
	r.t.Helper()
	a, err := r.try(script, args...)
	must(r.t, err)
	return a
}

func (r *rig) try(script *redis.Script, args ...any) (answer, error) {
	r.t.Helper()
	values, err := link.ScriptCall{Script: script, Key: r.key, Args: args}.Run(r.t.Context(), r.c)
	if err != nil {
		return answer{}, err
	}
	return readAnswer(values, 0)
}

// acquired is one call of acquire; zero means the usual.
type acquiring struct {
	lease    time.Duration // 30 s
	alive    time.Duration
	inbox    string
	barge    bool
	notAfter int64
	label    string
}

func (r *rig) acquire(name string, a acquiring) answer {
	r.t.Helper()
	return r.do(scripts.acquire, a.args(name)...)
}

func (a acquiring) args(name string) []any {
	if a.lease == 0 {
		a.lease = 30 * time.Second
	}
	if a.inbox == "" {
		a.inbox = noToken
	}
	return []any{token(name), "in:", "0", millis(a.lease), holderText(a.label), a.inbox, millis(a.alive), flag(a.barge), a.notAfter}
}

// waits puts name into the queue.
func (r *rig) waits(name string) answer {
	r.t.Helper()
	return r.acquire(name, acquiring{alive: alive, label: name})
}

func (r *rig) renew(name string, lease time.Duration) answer {
	r.t.Helper()
	return r.do(scripts.renew, token(name), "in:", "0", millis(lease))
}

func (r *rig) release(name string) answer {
	r.t.Helper()
	return r.do(scripts.release, token(name), "in:", "0")
}

// holds fails unless name has the lock.
func (r *rig) holds(name string) {
	r.t.Helper()
	a := r.do(scripts.inspect, noToken, "in:", "0")
	if a.text(0) == stateFree || a.text(6) != token(name) {
		r.t.Errorf("state %s of %s, want it to be held by %s", a.text(0), a.text(6), token(name))
	}
}

// now is the server's time in µs.
func (r *rig) now() int64 {
	r.t.Helper()
	now, err := r.c.Time(r.t.Context()).Result()
	must(r.t, err)
	return now.UnixMicro()
}

func (r *rig) life() time.Duration { return r.c.PTTL(r.t.Context(), r.key).Val() }

func (r *rig) raw() string { return r.c.Get(r.t.Context(), r.key).Val() }

// soaks tells whether the tests may take long.
func soaks() bool { return os.Getenv("LEVEE_SOAK") == "1" }
