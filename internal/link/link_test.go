package link

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// client is one that is never used to talk to a server.
func client(t *testing.T) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DB: 3})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// openLinks is how many links there are now.
func openLinks() int {
	links.mu.Lock()
	defer links.mu.Unlock()
	return len(links.open)
}

func TestTheSameClientHasOneLinkUntilItsLastUserCloses(t *testing.T) {
	c := client(t)
	first, err := Open(c)
	must(t, err)
	second, err := Open(c)
	must(t, err)
	equal(t, "the second user's link", second, first)

	first.Close()
	third, err := Open(c)
	must(t, err)
	equal(t, "the link while a user is left", third, first)

	second.Close()
	third.Close()
	equal(t, "links left", openLinks(), 0)
	if fresh := open(t, c); fresh == first {
		t.Error("a link that its last user had closed was handed out again")
	}
}

func TestTwoClientsHaveTwoLinks(t *testing.T) {
	if a, b := open(t, client(t)), open(t, client(t)); a == b {
		t.Error("two clients share a link")
	}
}

func TestLinksAreCountedRightByManyAtOnce(t *testing.T) {
	c := client(t)
	var users sync.WaitGroup
	for range 32 {
		users.Go(func() {
			for range 50 {
				l, err := Open(c)
				if err != nil || l.Client != redis.UniversalClient(c) {
					t.Errorf("link of %v, error %v", l, err)
					return
				}
				l.Close()
			}
		})
	}
	users.Wait()
	equal(t, "links left", openLinks(), 0)
}

// wrapper is a client of the user's own. With something in extra it cannot be compared.
type wrapper struct {
	redis.UniversalClient
	extra any
}

func TestAWrapperThatCannotBeComparedGetsALinkOfItsOwn(t *testing.T) {
	w := wrapper{client(t), func() {}}
	first, err := Open(w)
	must(t, err)
	second, err := Open(w)
	must(t, err)
	if first == second {
		t.Error("clients that cannot be compared were taken for the same")
	}
	equal(t, "links registered", openLinks(), 0)
	first.Close()
	second.Close()
	second.Close()
}

func TestAWrapperThatCanBeComparedSharesItsLink(t *testing.T) {
	w := wrapper{client(t), "name"}
	equal(t, "the second link", open(t, w), open(t, w))
}

func TestClientsThatCannotBeUsedAreRefusedWithTheReason(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer func() { _ = ring.Close() }()
	for _, tc := range []struct {
		situation string
		client    redis.UniversalClient
		reason    string
	}{
		{"nil", nil, "client is nil"},
		{"a nil client in an interface", (*redis.Client)(nil), "nil *redis.Client"},
		{"a nil cluster client in an interface", (*redis.ClusterClient)(nil), "nil *redis.ClusterClient"},
		{"a ring", ring, "two nodes could hold the same lease"},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			l, err := Open(tc.client)
			saying(t, err, tc.reason)
			if l != nil {
				t.Error("a link was opened all the same")
			}
		})
	}
	equal(t, "links left", openLinks(), 0)
}

func TestClosingNeverClosesTheUsersClient(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		c := b.Client(t)
		l, err := Open(c)
		must(t, err)
		must(t, confirmed(l.Hub.Listen("ch")))
		l.Close()
		must(t, c.Ping(t.Context()).Err())
	})
}

func TestOnlyTheLastUsersCloseEndsTheGoroutines(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		c := b.Client(t)
		first, err := Open(c)
		must(t, err)
		last, err := Open(c)
		must(t, err)
		listener := last.Hub.Listen("ch")
		must(t, confirmed(listener))
		r := hold(t, last, c, "k", leaseLength)

		first.Close()
		b.Mini().Publish("ch", "")
		must(t, confirmed(listener))
		r.mustLiveFor(t, 3*leaseLength)

		last.Close()
		equal(t, "goroutines left", hubGoroutines()+renewGoroutines(), 0)
	})
}

func TestTheClientsDatabaseIsKnown(t *testing.T) {
	for _, tc := range []struct {
		situation string
		client    redis.UniversalClient
		db        int
	}{
		{"a client", client(t), 3},
		{"a wrapper that shows its options", struct{ *redis.Client }{client(t)}, 3},
		{"a wrapper that does not", wrapper{client(t), nil}, 0},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			equal(t, "database", open(t, tc.client).DB(), tc.db)
		})
	}
}

func TestClientsThatReadReplicasAreKnown(t *testing.T) {
	for _, tc := range []struct {
		situation string
		options   redis.ClusterOptions
		replicas  bool
	}{
		{"by default", redis.ClusterOptions{}, false},
		{"ReadOnly", redis.ClusterOptions{ReadOnly: true}, true},
		{"RouteByLatency", redis.ClusterOptions{RouteByLatency: true}, true},
		{"RouteRandomly", redis.ClusterOptions{RouteRandomly: true}, true},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			tc.options.Addrs = []string{"127.0.0.1:1"}
			c := redis.NewClusterClient(&tc.options)
			defer func() { _ = c.Close() }()
			equal(t, "reads replicas", open(t, c).ReadsReplicas, tc.replicas)
			wrapped := struct{ *redis.ClusterClient }{c}
			equal(t, "reads replicas through a wrapper", open(t, wrapped).ReadsReplicas, tc.replicas)
		})
	}
}

func TestInACluster(t *testing.T) {
	cluster := redistest.Cluster(t)
	t.Run("each key has its master", func(t *testing.T) { eachKeyHasItsMaster(t, cluster) })
	t.Run("a frozen master costs its own leases only", func(t *testing.T) { ownLeasesOnly(t, cluster) })
}

func eachKeyHasItsMaster(t *testing.T, cluster *redistest.Cluster3) {
	l := open(t, cluster.Client(t))
	masters := map[string]bool{}
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		i, err := cluster.NodeFor(t.Context(), key)
		must(t, err)
		equal(t, "master of "+key, l.Master(t.Context(), key), cluster.Addrs()[i])
		masters[l.Master(t.Context(), key)] = true
		at, err := l.TimeOf(t.Context(), key)
		if err != nil || at.IsZero() {
			t.Errorf("time of the master of %s: %v, %v", key, at, err)
		}
	}
	equal(t, "masters", len(masters), 3)
}

func TestWithoutAClusterThereIsOneMaster(t *testing.T) {
	inBubble(t, func(t *testing.T, b *redistest.BubbleServer) {
		l := open(t, b.Client(t))
		equal(t, "master", l.Master(t.Context(), "a"), l.Master(t.Context(), "b"))
		at, err := l.TimeOf(t.Context(), "a")
		must(t, err)
		equal(t, "time of the server", at.UnixMicro(), time.Now().UnixMicro())
	})
}
