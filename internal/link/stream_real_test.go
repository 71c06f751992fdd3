package link

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// busyness is how much later than it should a busy machine may notice something.
const busyness = time.Second

// flowingReal is flowing on a real server.
func flowingReal(t *testing.T, sender, client redis.UniversalClient) (*Stream, *ear) {
	t.Helper()
	s := senders(t, sender)
	sends(t, s, kept, "first")
	e := ears(t, client)
	until(t, "the ear hears", e.hears)
	return s, e
}

// deaf waits until e does not hear, and fails if that took too long since an instant at which it
// could not hear any more.
func deaf(t *testing.T, e *ear, since time.Time) {
	t.Helper()
	until(t, "the ear notices", func() bool { return !e.hears() })
	if d := time.Since(since); d > trustTime+busyness {
		t.Errorf("noticed after %v", d)
	}
}

func TestABlackHoleIsNoticedAndHeals(t *testing.T) {
	t.Parallel()
	server := redistest.Real(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s, e := flowingReal(t, server.Client(t), proxy.Client(t, server))
	since := e.now()
	proxy.BlackHole(true)
	began := time.Now()
	sends(t, s, kept, "in the dark")
	deaf(t, e, began)
	proxy.BlackHole(false)
	until(t, "the ear hears again", e.hears)
	until(t, "the message", func() bool { return e.texts() == "in the dark" })
	equal(t, "gaps", e.stream.Counts().Gaps, 0)
	equal(t, "trusts what was asked for before", e.trusts(since), true)
	equal(t, "warnings", e.log.lines("level=WARN"), 1)
}

func TestCutConnectionsLoseNothingOnARealServer(t *testing.T) {
	server := redistest.Real(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s, e := flowingReal(t, server.Client(t), proxy.Client(t, server))
	since := e.now()
	for i, text := range numbers(300) {
		if i%10 == 0 {
			proxy.Cut()
		}
		sends(t, s, kept, text)
	}
	until(t, "all messages", func() bool { return e.count() >= 300 })
	equal(t, "texts", e.texts(), strings.Join(numbers(300), " "))
	until(t, "the ear hears", e.hears)
	equal(t, "floor moved", e.stream.Floor() > since, false)
}

func TestAFrozenServerIsNoticedAndClosingDoesNotWaitForIt(t *testing.T) {
	server := redistest.RealOnly(t)
	l := open(t, server.Client(t))
	s := l.OpenStream(streamKey)
	e := follow(t, s, "users", "ear")
	until(t, "the ear hears", e.hears)
	must(t, server.Pause())
	defer func() { _ = server.Resume() }()
	deaf(t, e, time.Now())
	must(t, server.Resume())
	until(t, "the ear hears again", e.hears)
	must(t, server.Pause())
	began := time.Now()
	s.Close()
	if d := time.Since(began); d > busyness {
		t.Errorf("closing took %v", d)
	}
	equal(t, "readers left", goroutinesIn(readers...), 0)
}

func TestAnEmptyServerAfterARestartIsNoticed(t *testing.T) {
	t.Parallel()
	server := redistest.RealOnly(t)
	_, e := flowingReal(t, server.Client(t), server.Client(t))
	since := e.now()
	must(t, server.Restart())
	until(t, "the gap", func() bool { return e.stream.Counts().Gaps == 1 && e.hears() })
	equal(t, "trusts what was asked for before", e.trusts(since), false)
	sends(t, senders(t, server.Client(t)), kept, "next")
	until(t, "the message", func() bool { return e.texts() == "next" })
}

func TestAMessageGoesOutWhenMemoryIsFull(t *testing.T) {
	for _, situation := range []string{"the stream exists", "it does not"} {
		t.Run(situation, func(t *testing.T) {
			server := redistest.RealOnly(t, "--maxmemory-policy", "noeviction")
			c := server.Client(t)
			s, e := flowingReal(t, c, server.Client(t))
			if situation == "it does not" {
				must(t, c.Del(t.Context(), streamKey).Err())
			}
			must(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
			saying(t, c.Set(t.Context(), "k", "v", 0).Err(), "OOM")
			sends(t, s, kept, "out")
			until(t, "the message", func() bool { return e.texts() == "out" })
			if left := c.PTTL(t.Context(), streamKey).Val(); left <= 0 || left > kept.Life {
				t.Errorf("the stream lives for %v", left)
			}
		})
	}
}

func TestARealServerTrimsTheStreamAndItIsNoticed(t *testing.T) {
	server := redistest.Real(t)
	proxy := redistest.NewProxy(t, server.Addr())
	s, e := flowingReal(t, server.Client(t), proxy.Client(t, server))
	since := e.now()
	proxy.Refuse(true)
	sendAll(t, s, Publication{Sender: "tester", Length: 100, Life: time.Hour}, numbers(2000)...)
	proxy.Refuse(false)
	until(t, "the gap", func() bool { return e.stream.Counts().Gaps == 1 && e.hears() })
	equal(t, "trusts what was asked for before", e.trusts(since), false)
	if n := e.count(); n < 100 || n > 400 {
		t.Errorf("%d messages left of 2000, asked for about 100", n)
	}
	until(t, "the last message", func() bool { return strings.HasSuffix(e.texts(), " 1999") })
}

func TestManySendersMakeOneChain(t *testing.T) {
	const nodes, each = 8, 100
	server := redistest.Real(t)
	_, e := flowingReal(t, server.Client(t), server.Client(t))
	since := e.now()
	var sending sync.WaitGroup
	for n := range nodes {
		s := senders(t, server.Client(t))
		sending.Go(func() {
			for i := range each {
				err := s.Send(t.Context(), &Budget{Left: 5 * time.Second}, kept,
					Message{Topic: "users", Kind: 'd', Text: fmt.Sprintf("%d.%d", n, i)},
					Message{Topic: "users", Kind: 'd', Text: fmt.Sprintf("%d.%d", n, i)})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	sending.Wait()
	until(t, "all messages", func() bool { return e.count() >= 2*nodes*each })
	equal(t, "gaps", e.stream.Counts(), StreamCounts{Received: 2 * nodes * each})
	until(t, "the ear hears", e.hears)
	equal(t, "trusts what was asked for before", e.trusts(since), true)
	chained(t, server.Client(t))
}

// chained fails unless each message in the stream names the one before it.
func chained(t *testing.T, c *redis.Client) {
	t.Helper()
	all, err := c.XRange(t.Context(), streamKey, "-", "+").Result()
	must(t, err)
	at := start
	for _, x := range all {
		if x.Values["p"] != at.String() {
			t.Errorf("message %v follows %v", x, at)
		}
		at = after(x)
	}
}

func TestAMessageThatIsSentTwiceBreaksNoChain(t *testing.T) {
	server := redistest.Real(t)
	c := server.Client(t)
	s, e := flowingReal(t, c, server.Client(t))
	call := s.SendCall(kept, Message{Topic: "users", Text: "a"}, Message{Topic: "users", Text: "b"})
	for _, r := range RunAll(t.Context(), c, []ScriptCall{call, call}) {
		must(t, r.Err)
		equal(t, "ids", len(r.Values), 2)
	}
	until(t, "all messages", func() bool { return e.count() == 4 })
	equal(t, "texts", e.texts(), "a b a b")
	equal(t, "gaps", e.stream.Counts().Gaps, 0)
	chained(t, c)
}

func TestAMissingRightIsReportedOnceAndHealsWhenItIsGiven(t *testing.T) {
	t.Parallel()
	server := redistest.RealOnly(t)
	admin := server.Client(t)
	rights := func(rights ...any) {
		must(t, admin.Do(t.Context(), append([]any{"acl", "setuser", "node", "on", ">secret", "allkeys", "+@all"}, rights...)...).Err())
	}
	rights("-xread")
	e := ears(t, server.Client(t, func(o *redis.Options) { o.Username, o.Password = "node", "secret" }))
	until(t, "the error", func() bool { return e.log.lines("level=ERROR") == 1 && e.log.lines("NOPERM") == 1 })
	rights("+xread")
	until(t, "the ear hears", e.hears)
	until(t, "the all clear", func() bool { return e.log.lines("received again") == 1 })
	equal(t, "lines", e.log.lines(""), 2)
}

func TestAWrongPasswordIsReportedAsAnError(t *testing.T) {
	server := redistest.RealOnly(t, "--requirepass", "right")
	e := ears(t, server.Client(t, func(o *redis.Options) { o.Password = "wrong" }))
	until(t, "the error", func() bool { return e.log.lines("level=ERROR") == 1 && e.log.lines("WRONGPASS") == 1 })
}

func TestAStreamOfAnotherDatabaseIsNotHeard(t *testing.T) {
	server := redistest.RealOnly(t)
	_, e := flowingReal(t, server.Client(t), server.Client(t))
	other, same := func(o *redis.Options) { o.DB = 5 }, func(*redis.Options) {}
	sends(t, senders(t, server.Client(t, other)), kept, "elsewhere")
	sends(t, senders(t, server.Client(t, same)), kept, "here")
	until(t, "the message", func() bool { return e.texts() == "here" })
	elsewhere := ears(t, server.Client(t, other))
	until(t, "the other ear hears", elsewhere.hears)
	sends(t, senders(t, server.Client(t, other)), kept, "elsewhere")
	until(t, "the message", func() bool { return elsewhere.texts() == "elsewhere" })
}

func TestAStreamInAClusterSurvivesItsSlotsMove(t *testing.T) {
	t.Parallel()
	cluster := redistest.Cluster(t)
	for situation, edit := range map[string]func(*redis.ClusterOptions){
		"client of the masters":           func(*redis.ClusterOptions) {},
		"client that reads from replicas": func(o *redis.ClusterOptions) { o.ReadOnly = true },
	} {
		t.Run(situation, func(t *testing.T) {
			s, e := flowingReal(t, cluster.Client(t), cluster.Client(t, edit))
			since := e.now()
			sends(t, s, kept, "before")
			until(t, "the message", func() bool { return e.texts() == "before" })
			moveSlot(t, cluster, streamKey)
			sends(t, s, kept, "after")
			until(t, "the message", func() bool { return e.texts() == "before after" })
			until(t, "the ear hears", e.hears)
			equal(t, "gaps", e.stream.Counts().Gaps, 0)
			equal(t, "trusts what was asked for before", e.trusts(since), true)
			refusesAsAReplica(t, e.stream.link)
		})
	}
}

// refusesAsAReplica fails if a connection of l's own would go on reading from a master that has
// become a replica.
func refusesAsAReplica(t *testing.T, l *Link) {
	t.Helper()
	c, err := l.openOwn(t.Context(), streamKey)
	must(t, err)
	defer c.close()
	info, err := ask(t.Context(), c, openPatience, func(ctx context.Context, c *redis.Conn) (string, error) {
		return c.Do(ctx, "client", "info").Text()
	})
	must(t, err)
	if !strings.Contains(info, " flags=N ") { // r: READONLY
		t.Errorf("flags in %q", info)
	}
}

// moveSlot hands the slot of key to another master, with the key.
func moveSlot(t *testing.T, cluster *redistest.Cluster3, key string) {
	t.Helper()
	nodes := make([]*redis.Client, 3)
	ids := make([]string, 3)
	for i := range nodes {
		nodes[i] = cluster.Node(i).Client(t)
		ids[i] = nodes[i].ClusterMyID(t.Context()).Val()
	}
	slot := nodes[0].ClusterKeySlot(t.Context(), key).Val()
	from := slices.IndexFunc(nodes, func(c *redis.Client) bool { return c.Exists(t.Context(), key).Err() == nil })
	to := (from + 1) % 3
	set := func(node int, args ...any) {
		must(t, nodes[node].Do(t.Context(), append([]any{"cluster", "setslot", slot}, args...)...).Err())
	}
	set(to, "importing", ids[from])
	set(from, "migrating", ids[to])
	host, port, err := net.SplitHostPort(cluster.Node(to).Addr())
	must(t, err)
	must(t, nodes[from].Migrate(t.Context(), host, port, key, 0, 5*time.Second).Err())
	set(to, "node", ids[to])
	set(from, "node", ids[to])
}

// The figures are for the reader of the log; what is checked is that nothing is missed.
func TestEightReadersHearWithinMilliseconds(t *testing.T) {
	const messages = 400
	server := redistest.Real(t)
	sender := server.Client(t)
	var mu sync.Mutex // guards sent and took
	sent := map[string]time.Time{}
	var took []time.Duration
	receive := func(m Message) {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(sent[m.Text]))
	}
	for range 8 {
		s := senders(t, server.Client(t))
		defer s.Follow(Follower{Topic: "users", Receive: receive})()
		until(t, "the reader hears", func() bool { return s.Hears(s.link.Clock.Now()) })
	}
	s := senders(t, sender)
	for _, text := range numbers(messages) {
		mu.Lock()
		sent[text] = time.Now()
		mu.Unlock()
		sends(t, s, kept, text)
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(took) }
	until(t, "all messages", func() bool { return count() >= 8*messages })
	slices.Sort(took)
	equal(t, "messages heard", len(took), 8*messages)
	t.Logf("from before the send, 8 readers, %s: p50 %v, p99 %v, max %v",
		server.Kind(), took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}
