package cache_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
)

// Where a header says how long the payload is, and which codec wrote it.
const (
	codecAt = 5
	bodyAt  = 184
	bodyEnd = 192

	spaceSize = 13 // of the namespace's generation, before the payload
)

// damages are what stands under an entry's key instead of the entry.
var damages = []struct {
	name string
	make func(entry string) string
}{
	{"empty string", func(string) string { return "" }},
	{"one byte", func(e string) string { return e[:1] }},
	{"first half", func(e string) string { return e[:len(e)/2] }},
	{"half of the payload", func(e string) string { return e[:len(e)-1] }},
	{"random bytes", func(string) string {
		b := make([]byte, 1024)
		for i := range b {
			b[i] = byte(rand.Uint32())
		}
		return string(b)
	}},
	{"huge claimed length", func(e string) string { return e[:bodyAt] + strings.Repeat("f", bodyEnd-bodyAt) + e[bodyEnd:] }},
	{"plain text", func(string) string { return "alice" }},
	{"a number", func(string) string { return "17" }},
}

// damaged is a fleet with an entry that nobody holds in memory, and its text in Redis.
func damaged(t *testing.T, body func(t *testing.T, f *fleet, key, entry string)) {
	t.Helper()
	inBubble(t, 3, settings(), func(t *testing.T, f *fleet) {
		for _, n := range f.nodes { // so that the server's clock is known
			gets(t, n, "other", value("other", 1))
		}
		gets(t, f.nodes[2], "k", value("k", 1))
		entry := f.raw("k")
		equal(t, "size of the entry", len(entry), bodyEnd+spaceSize+len(value("k", 1)))
		f.write("k")
		body(t, f, f.nodes[2].RedisKey("k"), entry)
	})
}

// crowd is 500 calls on each of the first two nodes, which must all get v2.
func crowd(t *testing.T, f *fleet) {
	t.Helper()
	for _, g := range start(t.Context(), 1000, "k", f.nodes[:2]...).wait() {
		if g.err != nil || g.value != value("k", 2) {
			t.Fatalf("a caller got %q, %v", g.value, g.err)
		}
	}
}

func TestB72_WhatIsNoEntryIsAMissAndGetsReplaced(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			damaged(t, func(t *testing.T, f *fleet, key, entry string) {
				must(t, f.probe.Set(t.Context(), key, d.make(entry), time.Minute).Err())
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				crowd(t, f)
				runtime.ReadMemStats(&after)
				equal(t, "loads", f.queries("k"), 2) // one of them made the entry
				f.stores("k", value("k", 2))
				equal(t, "the entry is whole", len(f.raw("k")), len(entry))
				unread := f.sum(func(s cache.Stats) int64 { return s.Undecodable })
				if unread < 1 || unread > 4 {
					t.Errorf("%d unreadable entries counted", unread)
				}
				if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
					t.Errorf("%d MiB were allocated", grown>>20)
				}
			})
		})
	}
}

// A well-formed entry of another codec belongs to another version of the service: each node
// loads once beside it, keeps that, and leaves the entry alone.
func TestB72_AnEntryOfAnotherCodecIsLeftAlone(t *testing.T) {
	damaged(t, func(t *testing.T, f *fleet, key, entry string) {
		foreign := entry[:codecAt] + "?" + entry[codecAt+1:]
		must(t, f.probe.Set(t.Context(), key, foreign, time.Minute).Err())
		crowd(t, f)
		equal(t, "loads", f.queries("k"), 3)
		equal(t, "entries of another codec counted", f.sum(func(s cache.Stats) int64 { return s.OtherCodec }), 2)
		equal(t, "entry", f.raw("k"), foreign)
	})
}

// Once it is no longer fresh, by the bubble's clock, it is rebuilt.
func TestB72_AStaleEntryOfAnotherCodecIsReplaced(t *testing.T) {
	damaged(t, func(t *testing.T, f *fleet, key, entry string) {
		foreign := entry[:codecAt] + "?" + entry[codecAt+1:]
		must(t, f.probe.Set(t.Context(), key, foreign, time.Minute).Err())
		time.Sleep(11 * time.Second)
		crowd(t, f)
		equal(t, "loads", f.queries("k"), 2)
		f.stores("k", value("k", 2))
	})
}

// Our design leaves a key of another Redis type alone and reports it: each node loads once per
// LocalTTL of the bubble's clock, and nobody gets an error.
func TestB72_AKeyOfAnotherRedisTypeIsLeftAlone(t *testing.T) {
	damaged(t, func(t *testing.T, f *fleet, key, _ string) {
		must(t, f.probe.Del(t.Context(), key).Err())
		must(t, f.probe.RPush(t.Context(), key, "a", "b").Err())
		must(t, f.probe.Expire(t.Context(), key, time.Minute).Err())
		reported := f.sum(func(s cache.Stats) int64 { return s.RedisErrors })
		crowd(t, f)
		equal(t, "loads", f.queries("k"), 3) // one of them before
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			crowd(t, f)
		}
		time.Sleep(time.Second)
		if loads := f.queries("k") - 1; loads > 2*6+2 {
			t.Errorf("%d loads on two nodes in 5 s, want one per node and second", loads)
		}
		equal(t, "list", fmt.Sprint(f.probe.LRange(t.Context(), key, 0, -1).Val()), "[a b]")
		equal(t, "it is reported", f.sum(func(s cache.Stats) int64 { return s.RedisErrors }) > reported, true)
	})
}

func TestB72_ARealServersListIsLeftAloneToo(t *testing.T) {
	o := settings()
	o.RedisTimeout = 5 * time.Second
	f := onServer(t, redistest.Shared(t), 2, o)
	key := f.nodes[0].RedisKey("k")
	must(t, f.probe.RPush(t.Context(), key, "a").Err())
	must(t, f.probe.Expire(t.Context(), key, time.Minute).Err())
	for _, g := range start(t.Context(), 200, "k", f.nodes...).wait() {
		if g.err != nil || g.value != value("k", 1) {
			t.Fatalf("a caller got %q, %v", g.value, g.err)
		}
	}
	equal(t, "loads", f.queries(), 2)
	equal(t, "list", fmt.Sprint(f.probe.LRange(t.Context(), key, 0, -1).Val()), "[a]")
	if e, ok := errors.AsType[*cache.InvalidationError](f.nodes[0].Set(t.Context(), "k", "set")); !ok {
		t.Errorf("Set over a list: %v", e)
	}
	equal(t, "list", fmt.Sprint(f.probe.LRange(t.Context(), key, 0, -1).Val()), "[a]")
}
