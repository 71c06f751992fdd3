package link

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// changes are the keys that a Tracking has reported.
type changes struct {
	tracking *Tracking
	link     *Link
	log      journal

	mu   sync.Mutex // guards keys
	keys []string
}

func (c *changes) receive(keys []string) (known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys = append(c.keys, keys...)
	return !slices.Contains(keys, "app:unknown")
}

// seen tells whether key was reported, and forgets all that was.
func (c *changes) seen(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := slices.Contains(c.keys, key)
	if found {
		c.keys = nil
	}
	return found
}

func (c *changes) trusts(since Instant) bool { return c.tracking.Trusts(since, c.link.Clock.Now()) }
func (c *changes) hears() bool               { return c.tracking.Hears(c.link.Clock.Now()) }

// tracker tracks the keys that begin with "app:".
func (c *changes) tracker() Tracker {
	return Tracker{Prefixes: []string{"app:"}, Receive: c.receive, Logger: slog.New(slog.NewTextHandler(&c.log, nil))}
}

// track tracks with a link of its own on client, and waits until it hears.
func track(t *testing.T, client redis.UniversalClient) *changes {
	t.Helper()
	c := &changes{link: open(t, client)}
	before := c.link.Clock.Now()
	var err error
	c.tracking, err = c.link.Track(t.Context(), c.tracker())
	must(t, err)
	t.Cleanup(c.tracking.Close)
	until(t, "changes are heard", c.hears)
	equal(t, "trusts what was asked for before", c.trusts(before), false)
	return c
}

// reported fails unless key is reported soon.
func reported(t *testing.T, c *changes, what, key string) {
	t.Helper()
	until(t, what+" is reported", func() bool { return c.seen(key) })
}

// doubted fails unless what was asked for at since comes into doubt, and changes are heard again.
func doubted(t *testing.T, c *changes, since Instant) {
	t.Helper()
	until(t, "doubt", func() bool { return c.tracking.Floor() > since })
	until(t, "changes are heard again", c.hears)
	equal(t, "trusts what was asked for before", c.trusts(since), false)
}

func TestAChangeByAnybodyIsReported(t *testing.T) {
	server := redistest.RealOnly(t)
	foreign, ctx := server.Client(t), t.Context()
	c := track(t, server.Client(t))
	since := c.link.Clock.Now()
	for _, change := range []struct {
		what string
		make func() error
	}{
		{"SET", func() error { return foreign.Set(ctx, "app:k", "v", 0).Err() }},
		{"APPEND", func() error { return foreign.Append(ctx, "app:k", "v").Err() }},
		{"EXPIRE", func() error { return foreign.Expire(ctx, "app:k", time.Hour).Err() }},
		{"DEL", func() error { return foreign.Del(ctx, "app:k").Err() }},
		{"a script", func() error {
			return foreign.Eval(ctx, "return redis.call('SET', KEYS[1], '1', 'PX', 20)", []string{"app:k"}).Err()
		}},
		{"expiry", func() error { return nil }},
		{"our own client", func() error { return c.link.Client.Set(ctx, "app:k", "v", 0).Err() }},
		{"UNLINK", func() error { return foreign.Unlink(ctx, "app:k").Err() }},
	} {
		must(t, change.make())
		reported(t, c, change.what, "app:k")
	}
	must(t, foreign.Set(ctx, "other:k", "v", 0).Err())
	must(t, foreign.Set(ctx, "app:last", "v", 0).Err())
	until(t, "the last key", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Contains(c.keys, "app:last")
	})
	equal(t, "a key with another prefix", c.seen("other:k"), false)
	equal(t, "trusts all the time", c.trusts(since), true)
}

func TestAnEvictionIsReported(t *testing.T) {
	server := redistest.RealOnly(t, "--maxmemory-policy", "allkeys-random")
	foreign := server.Client(t)
	must(t, foreign.Set(t.Context(), "app:victim", "v", 0).Err())
	c := track(t, server.Client(t))
	must(t, foreign.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_ = foreign.Set(t.Context(), "other:k", "v", 0).Err() // OOM once everything is gone
	reported(t, c, "the eviction", "app:victim")
}

// TestAChangeOfWhoKnowsWhatIsInDoubt: what was asked for before may be what has changed.
func TestAChangeOfWhoKnowsWhatIsInDoubt(t *testing.T) {
	server := redistest.RealOnly(t)
	c := track(t, server.Client(t))
	since := c.link.Clock.Now()
	must(t, server.Client(t).Set(t.Context(), "app:unknown", "v", 0).Err())
	doubted(t, c, since)
}

func TestAFlushedDatabaseIsInDoubt(t *testing.T) {
	server := redistest.RealOnly(t)
	foreign := server.Client(t)
	must(t, foreign.Set(t.Context(), "app:k", "v", 0).Err())
	c := track(t, server.Client(t))
	since := c.link.Clock.Now()
	must(t, foreign.FlushAll(t.Context()).Err())
	doubted(t, c, since)
	must(t, foreign.Set(t.Context(), "app:k", "v", 0).Err())
	reported(t, c, "a change after it", "app:k")
	equal(t, "lines in the log: nothing broke", c.log.lines(""), 0)
}

func TestTrackingHealsAfterACut(t *testing.T) {
	server := redistest.RealOnly(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := track(t, proxy.Client(t, server))
	for range 3 {
		since := c.link.Clock.Now()
		proxy.Cut()
		doubted(t, c, since)
		must(t, server.Client(t).Set(t.Context(), "app:k", "v", 0).Err())
		reported(t, c, "a change", "app:k")
	}
	proxy.Refuse(true)
	until(t, "the loss is noticed", func() bool { return !c.hears() })
	between := c.link.Clock.Now()
	proxy.Refuse(false)
	doubted(t, c, between)
}

func TestABlackHoleAroundTrackingIsNoticedAndHeals(t *testing.T) {
	t.Parallel()
	server := redistest.RealOnly(t)
	proxy := redistest.NewProxy(t, server.Addr())
	c := track(t, proxy.Client(t, server))
	since := c.link.Clock.Now()
	proxy.BlackHole(true)
	began := time.Now()
	until(t, "the silence is noticed", func() bool { return !c.hears() })
	if d := time.Since(began); d > trustTime+busyness {
		t.Errorf("noticed after %v", d)
	}
	until(t, "a warning", func() bool { return c.log.lines("level=WARN") == 1 })
	proxy.BlackHole(false)
	doubted(t, c, since)
	until(t, "the all clear", func() bool { return c.log.lines("received again") == 1 })
}

// Without the holder the listener would hear nothing, and take it for quiet; and the other way.
func TestTheLossOfEitherConnectionIsNoticed(t *testing.T) {
	for connection, flag := range map[string]string{"holder": "t", "listener": "P"} {
		t.Run(connection, func(t *testing.T) {
			server := redistest.RealOnly(t)
			admin := server.Client(t)
			c := track(t, server.Client(t))
			since := c.link.Clock.Now()
			must(t, admin.Do(t.Context(), "client", "kill", "id", clientWith(t, admin, flag)).Err())
			began := time.Now()
			until(t, "the loss is noticed", func() bool { return !c.trusts(since) })
			if d := time.Since(began); d > trustTime+busyness {
				t.Errorf("noticed after %v", d)
			}
			doubted(t, c, since)
			must(t, admin.Set(t.Context(), "app:k", "v", 0).Err())
			reported(t, c, "a change", "app:k")
		})
	}
}

// clientWith is the id of the connection that has a flag.
func clientWith(t *testing.T, admin *redis.Client, flag string) string {
	t.Helper()
	list, err := admin.ClientList(t.Context()).Result()
	must(t, err)
	for line := range strings.Lines(list) {
		fields := map[string]string{}
		for field := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		if strings.Contains(fields["flags"], flag) {
			return fields["id"]
		}
	}
	t.Fatalf("no connection with flag %q in\n%s", flag, list)
	return ""
}

// refuses fails unless Track on client is refused with an error that says what.
func refuses(t *testing.T, client redis.UniversalClient, what string) {
	t.Helper()
	c := &changes{link: open(t, client)}
	tracking, err := c.link.Track(t.Context(), c.tracker())
	if err == nil {
		tracking.Close()
	}
	saying(t, err, what)
}

func TestWithoutARightTrackingIsRefused(t *testing.T) {
	server := redistest.RealOnly(t)
	admin := server.Client(t)
	for _, tc := range []struct {
		situation, says string
		rights          []any
	}{
		{"no tracking", "NOPERM", []any{"-client|tracking"}},
		{"no id", "NOPERM", []any{"-client|id"}},
		{"no channels", "NOPERM", []any{"resetchannels"}},
		{"wrong password", "WRONGPASS", []any{"resetpass", ">another"}},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			user := append([]any{"acl", "setuser", "node", "reset", "on", ">secret", "allkeys", "allchannels", "+@all"}, tc.rights...)
			must(t, admin.Do(t.Context(), user...).Err())
			refuses(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = "node", "secret" }), tc.says)
		})
	}
}

func TestARefusedAttemptLeavesNoConnection(t *testing.T) {
	server := redistest.RealOnly(t)
	admin := server.Client(t)
	must(t, admin.Do(t.Context(), "acl", "setuser", "node", "on", ">secret", "allkeys", "allchannels", "+@all", "-client|tracking").Err())
	l := open(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = "node", "secret" }))
	w := newWatcher(&Tracking{link: l, tracker: Tracker{Prefixes: []string{"app:"}}}, l.options, nil)
	_, err := w.open(t.Context())
	saying(t, err, "NOPERM")
	until(t, "the connections go", func() bool {
		return !strings.Contains(admin.ClientList(t.Context()).Val(), "user=node")
	})
}

func TestAServerWithoutTrackingRefusesIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		refuses(t, b.Client(t), "does not let this client track keys")
		synctest.Wait()
		equal(t, "goroutines left", goroutinesIn(trackers...), 0)
	})
}

func TestWhatCannotBeTrackedIsRefused(t *testing.T) {
	refuses(t, wrapper{UniversalClient: client(t)}, "does not show its options")
	_, err := open(t, client(t)).Track(t.Context(), Tracker{})
	saying(t, err, "no prefixes")
	server := redistest.RealOnly(t)
	_, err = open(t, server.Client(t)).Track(t.Context(), Tracker{Prefixes: []string{"a", "ab"}, Receive: func([]string) bool { return true }})
	saying(t, err, "overlaps")
}

func TestAServerThatIsNotThereIsNoRefusal(t *testing.T) {
	tracking, err := open(t, client(t)).Track(t.Context(), (&changes{}).tracker())
	must(t, err)
	tracking.Close()
}

// trackers are the names on the stacks of what a Tracking runs.
var trackers = []string{"link.(*Tracking)", "link.(*watcher)", "link.(*pair)", "go-redis/v9.(*PubSub)"}

func TestSilenceIsNoRefusal(t *testing.T) {
	server := redistest.RealOnly(t)
	c := &changes{link: open(t, server.Client(t))}
	must(t, server.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var err error
	c.tracking, err = c.link.Track(ctx, c.tracker())
	must(t, err)
	equal(t, "trusts in the silence", c.trusts(c.link.Clock.Now()), false)
	must(t, server.Resume())
	until(t, "changes are heard", c.hears)

	must(t, server.Pause())
	began := time.Now()
	c.tracking.Close()
	if d := time.Since(began); d > busyness {
		t.Errorf("closing took %v", d)
	}
	must(t, server.Resume())
	equal(t, "goroutines left", goroutinesIn(trackers...), 0)
	c.tracking.Close()
}

func TestEveryMasterOfAClusterIsTracked(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	foreign := cluster.Client(t)
	c := track(t, cluster.Client(t))
	since := c.link.Clock.Now()
	masters := map[int]bool{}
	for i := 0; len(masters) < 3; i++ {
		key := "app:" + numbers(i + 1)[i]
		node, err := cluster.NodeFor(t.Context(), key)
		must(t, err)
		masters[node] = true
		must(t, foreign.Set(t.Context(), key, "v", 0).Err())
		reported(t, c, "a change", key)
	}
	equal(t, "trusts what was asked for before", c.trusts(since), true)
	must(t, cluster.Node(1).Pause())
	until(t, "one silent master ends the trust", func() bool { return !c.trusts(since) })
	must(t, cluster.Node(1).Resume())
	doubted(t, c, since)
}

func TestMastersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		tracking := &Tracking{link: newLink(client(t)), stop: cancel, masters: map[string]*watcher{}}
		watched := func(addrs ...string) map[string]*watcher {
			t.Helper()
			masters := map[string]*redis.Options{}
			for _, addr := range addrs {
				masters[addr] = &redis.Options{Addr: addr, Dialer: func(context.Context, string, string) (net.Conn, error) {
					return nil, net.ErrClosed
				}}
			}
			tracking.watch(ctx, masters)
			time.Sleep(time.Second)
			equal(t, "watchers at work", goroutinesIn("link.(*watcher).run"), len(addrs))
			return maps.Clone(tracking.masters)
		}
		first, second := watched("a", "b"), watched("b", "c")
		equal(t, "the watcher of the master that stays", second["b"], first["b"])
		equal(t, "one that has gone", second["a"], nil)
		equal(t, "masters", len(second), 2)
		tracking.Close()
		equal(t, "watchers after Close", goroutinesIn("link.(*watcher).run"), 0)
	})
}

func TestTheTrustOfManyMastersIsThatOfTheWorst(t *testing.T) {
	tracking := &Tracking{masters: map[string]*watcher{}}
	joined := func(floor, until Instant) {
		t.Helper()
		tracking.joinLocked()
		equal(t, "floor", tracking.Floor(), floor)
		equal(t, "until", Instant(tracking.until.Load()), until)
	}
	joined(0, 0)
	a, b := &watcher{}, &watcher{}
	a.trust.raise(5)
	a.trust.prove(10)
	tracking.masters["a"] = a
	joined(5, Instant(10).Add(trustTime))
	tracking.masters["b"] = b
	joined(5, 0) // a new master has not been heard yet
	b.trust.raise(8)
	b.trust.prove(9)
	joined(8, Instant(9).Add(trustTime))
	delete(tracking.masters, "b")
	joined(8, Instant(10).Add(trustTime)) // the floor does not fall
	delete(tracking.masters, "a")
	joined(8, 0)
}
