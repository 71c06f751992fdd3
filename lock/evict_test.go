package lock

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// logged is a log that is read while it is written.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// count says how often the log has text.
func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func (l *logged) option() Option { return WithLogger(slog.New(slog.NewTextHandler(l, nil))) }

func TestAServerThatMayEvictLocksIsWarnedOfOnce(t *testing.T) {
	for situation, c := range map[string]struct {
		args []string
		want int
	}{
		"volatile-lru": {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"}, 1},
		"noeviction":   {[]string{"--maxmemory", "100mb", "--maxmemory-policy", "noeviction"}, 0},
		"no bound":     {[]string{"--maxmemory", "0", "--maxmemory-policy", "allkeys-lru"}, 0},
	} {
		t.Run(situation, func(t *testing.T) {
			log := &logged{}
			client, w := redistest.RealOnly(t, c.args...).Client(t), &waits{}
			client.AddHook(w)
			k, err := New(client, log.option())
			must(t, err)
			equal(t, "sent by New", w.takes(), "")
			for range 3 {
				must(t, lock(t, k, "x").Unlock(t.Context()))
			}
			must(t, k.Close()) // and with it what goes on behind
			equal(t, "asked", strings.Count(w.takes(), "info"), 1)
			equal(t, "warnings", log.count("may evict"), c.want)
			equal(t, "names the policy", log.count("maxmemory-policy=volatile-lru"), c.want)
		})
	}
}

func TestAServerThatDoesNotTellOfItsMemoryFailsNothing(t *testing.T) {
	s := redistest.RealOnly(t)
	must(t, s.Client(t).Do(t.Context(), "acl", "setuser", "few", "on", ">p", "~*", "&*", "+@all", "-info").Err())
	log := &logged{}
	k := onReal(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "few", "p" }), log.option())
	must(t, lock(t, k, "x").Unlock(t.Context()))
	must(t, k.Close())
	equal(t, "logged", log.count("level="), 0)
}

func TestALockDoesNotWaitForWhatTheServerTellsOfItsMemory(t *testing.T) {
	bubble(t, func(t *testing.T, s *server) {
		n := s.node((&logged{}).option())
		n.faults.Delay(redistest.Name("info"), 300*time.Millisecond)
		began := time.Now()
		must(t, lock(t, n.Locker, "x").Unlock(t.Context()))
		equal(t, "took", time.Since(began), 0)
	})
}
