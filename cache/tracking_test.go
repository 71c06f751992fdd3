package cache_test

import (
	"strings"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// trackers are nodes on a real server that hear of changes by tracking alone.
func trackers(t *testing.T, nodes int) *fleet {
	t.Helper()
	o := hours()
	o.RedisTimeout = time.Second
	o.Tracking, o.StreamLength = true, cache.Off
	f := onServer(t, redistest.RealOnly(t), nodes, o)
	f.query = takes(time.Millisecond)
	return f
}

// soonGets fails unless n gets want within a few seconds: far below the hour of LocalTTL.
func soonGets(t *testing.T, n *node, key, want string) {
	t.Helper()
	for range 500 {
		if v, err := n.Get(t.Context(), key); err == nil && v == want {
			return
		}
		time.Sleep(10 * time.Millisecond) // real time: a server reports
	}
	v, err := n.Get(t.Context(), key)
	t.Errorf("got %q, %v of %.20s, want %q", v, err, key, want)
}

func TestTrackingAloneTellsOfAClear(t *testing.T) {
	f := trackers(t, 2)
	for _, n := range f.nodes {
		gets(t, n, "k", value("k", 1))
	}
	f.write("k")
	must(t, f.nodes[0].Clear(t.Context()))
	soonGets(t, f.nodes[1], "k", value("k", 2))
}

func TestTrackingAloneTellsOfTheEndOfATag(t *testing.T) {
	for _, m := range mass {
		t.Run(m.name, func(t *testing.T) {
			f := trackers(t, 2)
			for _, n := range f.nodes {
				must(t, n.Set(t.Context(), "red-0", value("red-0", 1), cache.Tags(tagsOf("red-0")...)))
				gets(t, n, "red-0", value("red-0", 1))
			}
			soonGets(t, f.nodes[0], "red-0", value("red-0", 1))
			f.write("red-0")
			must(t, m.end(t.Context(), f.nodes[0]))
			soonGets(t, f.nodes[1], "red-0", value("red-0", 2))
		})
	}
}

// The key in Redis is a digest of the text: a report does not tell which copy is meant.
func TestTrackingCoversLongKeys(t *testing.T) {
	f, key := trackers(t, 1), strings.Repeat("long", 300)
	gets(t, f.nodes[0], key, value(key, 1))
	f.write(key)
	must(t, f.probe.Del(t.Context(), f.nodes[0].RedisKey(key)).Err())
	soonGets(t, f.nodes[0], key, value(key, 2))
}
