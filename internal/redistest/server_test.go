package redistest

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func impatient(o *redis.Options) {
	o.ReadTimeout, o.MaxRetries, o.DialerRetries = 100*time.Millisecond, -1, 1
}

func TestServersOfTwoTestsShareNothing(t *testing.T) {
	a, b := Real(t), Real(t)
	must(t, a.Client(t).Set(t.Context(), "k", "a", 0).Err())
	if err := b.Client(t).Get(t.Context(), "k").Err(); !errors.Is(err, redis.Nil) {
		t.Fatalf("the other server knows the key: %v", err)
	}
}

func TestAPausedServerAnswersNothingUntilItIsResumed(t *testing.T) {
	s := RealOnly(t)
	c := s.Client(t, impatient)
	must(t, c.Ping(t.Context()).Err())
	must(t, s.Pause())
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a paused server answered")
	}
	must(t, s.Resume())
	Eventually(t, longEnough, func() bool { return c.Ping(t.Context()).Err() == nil })
}

func TestAPausedServerCanBeStopped(t *testing.T) {
	s := RealOnly(t)
	must(t, s.Pause())
	must(t, s.Stop())
	must(t, s.Stop())
}

func TestAKilledServerRestartsEmptyOnItsPort(t *testing.T) {
	s := RealOnly(t)
	c := s.Client(t, impatient)
	must(t, c.Set(t.Context(), "k", "v", 0).Err())
	pid, addr := s.Pid(), s.Addr()
	must(t, s.Kill())
	if c.Ping(t.Context()).Err() == nil {
		t.Fatal("a killed server answered")
	}
	must(t, s.Restart())
	equal(t, "address", s.Addr(), addr)
	if s.Pid() == pid {
		t.Fatal("it is the same process")
	}
	n, err := c.DBSize(t.Context()).Result()
	must(t, err)
	equal(t, "keys", n, 0)
}

func TestStoppingLeavesNoFiles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := RealOnly(t)
	must(t, s.Restart())
	must(t, s.Stop())
	left, err := os.ReadDir(os.TempDir())
	must(t, err)
	equal(t, "files", len(left), 0)
}

func TestArgumentsReachTheServer(t *testing.T) {
	s := RealOnly(t, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
	c := s.Client(t)
	got, err := c.ConfigGet(t.Context(), "maxmemory").Result()
	must(t, err)
	equal(t, "maxmemory", got["maxmemory"], "3145728")
	err = c.Set(t.Context(), "k", strings.Repeat("x", 4<<20), 0).Err()
	if err == nil {
		err = c.Set(t.Context(), "other", "v", 0).Err()
	}
	if !redis.IsOOMError(err) {
		t.Fatalf("a full server said %v", err)
	}
}

func TestAServerThatWantsAPasswordCountsAsStarted(t *testing.T) {
	s := RealOnly(t, "--requirepass", "secret")
	c := s.Client(t, func(o *redis.Options) { o.Password = "secret" })
	must(t, c.Ping(t.Context()).Err())
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	RealOnly(t)
	_, err := Start(Options{Args: []string{"--no-such-setting", "1"}})
	if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Fatalf("got %v", err)
	}
}

func TestKindNamesProgramAndVersion(t *testing.T) {
	s := RealOnly(t)
	program, version, _ := strings.Cut(s.Kind(), " ")
	if !strings.HasSuffix(program, "-server") || strings.Count(version, ".") != 2 || !s.IsReal() {
		t.Fatalf("kind is %q", s.Kind())
	}
}

func TestKindKnowsValkey(t *testing.T) {
	i := parseInfo("# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.0\r\nprocess_id:12\r\n")
	equal(t, "kind", i.kind(i.program()), "valkey-server 8.1.0")
	equal(t, "pid", i.pid, 12)
}

func TestTheEmbeddedServerExpiresKeysAndRestartsEmpty(t *testing.T) {
	s, err := Embedded()
	must(t, err)
	defer s.Stop()
	c := s.Client(t, impatient)
	must(t, c.Set(t.Context(), "k", "v", 20*time.Millisecond).Err())
	Eventually(t, longEnough, func() bool { return errors.Is(c.Get(t.Context(), "k").Err(), redis.Nil) })
	must(t, c.Set(t.Context(), "k", "v", 0).Err())
	addr := s.Addr()
	must(t, s.Restart())
	equal(t, "address", s.Addr(), addr)
	Eventually(t, longEnough, func() bool { return errors.Is(c.Get(t.Context(), "k").Err(), redis.Nil) })
	blocked := time.Now()
	_ = c.XRead(t.Context(), &redis.XReadArgs{Streams: []string{"s", "0"}, Block: 50 * time.Millisecond}).Err()
	if time.Since(blocked) < 50*time.Millisecond {
		t.Fatal("blocking commands do not block after a restart")
	}
	if !strings.HasPrefix(s.Kind(), "embedded (miniredis") || s.IsReal() || !errors.Is(s.Pause(), ErrUnsupported) {
		t.Fatalf("kind is %q", s.Kind())
	}
}

func TestWithoutAServerProgramTestsFallBackLoudlyOrSkip(t *testing.T) {
	withoutServers(t)
	r := record(t, func(t TB) {
		if s := Real(t); s.IsReal() {
			t.Fatalf("found %s", s.Kind())
		}
	})
	if !strings.Contains(r.log, "EMBEDDED") || r.fatal != "" {
		t.Fatalf("Real logged %q and failed with %q", r.log, r.fatal)
	}
	if r := record(t, func(t TB) { RealOnly(t) }); !strings.Contains(r.skip, "REAL SERVER") {
		t.Fatalf("RealOnly skipped with %q, failed with %q", r.skip, r.fatal)
	}
	if r := record(t, func(t TB) { Cluster(t) }); r.skip == "" {
		t.Fatal("Cluster did not skip")
	}
	s, err := StartAny(Options{})
	must(t, err)
	equal(t, "real", s.IsReal(), false)
	must(t, s.Stop())
}

func TestWithoutAServerProgramTestsFailWhereOneIsRequired(t *testing.T) {
	withoutServers(t)
	t.Setenv("LEVEE_REQUIRE_REDIS", "1")
	for name, f := range map[string]func(TB){
		"Real":     func(t TB) { Real(t) },
		"RealOnly": func(t TB) { RealOnly(t) },
		"Cluster":  func(t TB) { Cluster(t) },
	} {
		if r := record(t, f); !strings.Contains(r.fatal, ErrNoServer.Error()) {
			t.Errorf("%s ended with %q", name, r.fatal)
		}
	}
}

func withoutServers(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv("REDIS_ADDR", "")
	t.Setenv("LEVEE_REQUIRE_REDIS", "")
}

func TestSharedDatabasesAreSeparateAndStartEmpty(t *testing.T) {
	t.Setenv("REDIS_ADDR", "")
	for range 3 {
		t.Run("user", func(t *testing.T) {
			a, b := Shared(t), Shared(t)
			for _, s := range []*Server{a, b} {
				n, err := s.Client(t).DBSize(t.Context()).Result()
				must(t, err)
				equal(t, "keys", n, 0)
				must(t, s.Client(t).Set(t.Context(), "k", "v", 0).Err())
			}
		})
	}
}

func TestTheSharedServerCannotBeDisturbed(t *testing.T) {
	RealOnly(t)
	t.Setenv("REDIS_ADDR", "")
	s := Shared(t)
	for _, f := range []func() error{s.Kill, s.Pause, s.Resume, s.Restart} {
		if err := f(); !errors.Is(err, ErrUnsupported) {
			t.Fatalf("got %v", err)
		}
	}
	must(t, s.Stop())
	must(t, s.Client(t).Ping(t.Context()).Err())
}

func TestAnExternalServerLendsEmptyDatabasesAndKeepsItsData(t *testing.T) {
	owner := RealOnly(t)
	ctx := context.Background()
	other := owner.Client(t, func(o *redis.Options) { o.DB = 1 })
	must(t, other.Set(ctx, "precious", "v", 0).Err())
	t.Setenv("REDIS_ADDR", owner.Addr())

	a, err := Start(Options{})
	must(t, err)
	b, err := Start(Options{})
	must(t, err)
	if a.DB() < 2 || b.DB() < 2 || a.DB() == b.DB() {
		t.Fatalf("lent databases %d and %d", a.DB(), b.DB())
	}
	must(t, a.Client(t).Set(ctx, "k", "v", 0).Err())
	if !errors.Is(a.Pause(), ErrUnsupported) || !strings.Contains(a.Kind(), "REDIS_ADDR") {
		t.Fatalf("kind is %q", a.Kind())
	}
	must(t, a.Stop())
	must(t, b.Stop())
	must(t, a.Stop())

	equal(t, "precious", other.Get(ctx, "precious").Val(), "v")
	space, err := other.Info(ctx, "keyspace").Result()
	must(t, err)
	equal(t, "databases in use", strings.Count(space, "keys="), 1)
}

func TestAPrivateServerIgnoresTheExternalOne(t *testing.T) {
	owner := RealOnly(t)
	t.Setenv("REDIS_ADDR", owner.Addr())
	if s := RealOnly(t); s.Addr() == owner.Addr() || s.Pid() == 0 {
		t.Fatal("got the external server")
	}
}
