package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// opened makes a cache that is closed when the test ends.
func opened[V any](t *testing.T, name string, load func(context.Context, string) (V, error), o cache.Options) *cache.Cache[string, V] {
	t.Helper()
	c, err := cache.New(name, loader.Func(load), o)
	must(t, err)
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// record has everything in it that can be shared.
type record struct {
	Tags  []string
	Notes map[string]string
}

func (r *record) Clone() *record { return &record{slices.Clone(r.Tags), maps.Clone(r.Notes)} }

func newRecord() *record {
	return &record{[]string{"one", "two"}, map[string]string{"colour": "red"}}
}

func (r *record) spoil() {
	r.Tags[0] = "spoilt"
	r.Notes["colour"] = "spoilt"
	delete(r.Notes, "size")
	r.Tags = append(r.Tags[:1], "spoilt")
}

type blob []byte

func (b blob) Clone() blob { return bytes.Clone(b) }

func newBlob() blob { return blob("two pages") }

func (b blob) spoil() { copy(b, "spoilt!!!") }

type spoilable[V any] interface {
	spoil()
	Clone() V
}

// spoiling has 50 joiners on two nodes, with Redis, or on one, without it. Each changes what it
// got as soon as it has it. It is for use in a bubble.
func spoiling[V spoilable[V]](t *testing.T, f *fleet, shared bool, intact func() V) {
	o := settings()
	o.Clone = true
	load := func(ctx context.Context, _ string) (V, error) { return intact(), pass(ctx, 200*time.Millisecond) }
	var nodes []*cache.Cache[string, V]
	node := func() *cache.Cache[string, V] {
		if shared {
			o.Redis, _ = f.dial()
		}
		nodes = append(nodes, opened(t, "b06", load, o))
		return nodes[len(nodes)-1]
	}
	spoil := func(v V, err error) {
		if err != nil || !reflect.DeepEqual(v, intact()) {
			t.Errorf("got %v, %v, want %v", v, err, intact())
			return
		}
		v.spoil()
	}
	entry := func(e cache.Entry[V], err error) { spoil(e.Value, err) }
	peek := func(e cache.Entry[V], _ bool, err error) { spoil(e.Value, err) }

	first, second := node(), node()
	if !shared {
		second = first
	}
	var joiners sync.WaitGroup
	for i := range 50 {
		joiners.Go(func() { spoil([]*cache.Cache[string, V]{first, second}[i%2].Get(t.Context(), "k")) })
	}
	joiners.Wait()
	if shared {
		node() // it has to ask Redis
	}
	for _, n := range nodes {
		for range 3 {
			spoil(n.Get(t.Context(), "k"))
			entry(n.GetEntry(t.Context(), "k"))
			peek(n.Peek(t.Context(), "k"))
		}
	}
	time.Sleep(11 * time.Second) // now it is stale
	spoil(first.Get(t.Context(), "k"))
	spoil(first.Refresh(t.Context(), "k"))
	entry(second.GetEntry(t.Context(), "k"))
}

// The first half of the case's Right: with Clone every caller has a copy of his own. Without it
// values are documented as read-only. The race detector sees to "no race inside the library".
func TestB06_JoinersThatChangeTheirCopiesChangeNobodyElses(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprint("with Redis: ", shared), func(t *testing.T) {
			t.Run("a struct with a slice and a map", func(t *testing.T) {
				inBubble(t, 0, settings(), func(t *testing.T, f *fleet) { spoiling(t, f, shared, newRecord) })
			})
			t.Run("bytes", func(t *testing.T) {
				inBubble(t, 0, settings(), func(t *testing.T, f *fleet) { spoiling(t, f, shared, newBlob) })
			})
		})
	}
}

// The second half of Right: what Set was given is the caller's own again once Set has returned,
// also if it returned early, since its context had ended, and Redis is still at work.
func TestB06_TheBytesGivenToSetMayBeChangedOnceItHasReturned(t *testing.T) {
	for _, early := range []bool{false, true} {
		t.Run(fmt.Sprint("returned early: ", early), func(t *testing.T) {
			inBubble(t, 1, settings(), func(t *testing.T, f *fleet) {
				o, faults := settings(), redistest.NewFaults(t)
				o.Redis, _ = f.dial()
				o.Redis.AddHook(faults)
				c := opened(t, f.name(), func(context.Context, string) (blob, error) { return blob("loaded"), nil }, o)
				must(t, c.Set(t.Context(), "other", nil)) // now Redis knows the scripts
				given := blob("given")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if early {
					faults.Delay(isSeizure, 50*time.Millisecond)
					time.AfterFunc(10*time.Millisecond, cancel)
				}
				err := c.Set(ctx, "k", given)
				equal(t, "it left early", errors.Is(err, context.Canceled), early)
				copy(given, "other")
				time.Sleep(200 * time.Millisecond)

				stored := o.Redis.Get(t.Context(), c.RedisKey("k")).Val()
				equal(t, "Redis holds what was given", strings.HasSuffix(stored, "given"), true)
				v, err := c.Get(t.Context(), "k")
				must(t, err)
				equal(t, "value", string(v), "given")
			})
		})
	}
}

// namespaces are ways to keep two caches apart. The key of one, without its first part, looks
// like the other's.
var namespaces = []struct {
	name string
	a, b [3]string // Prefix, name, Schema
}{
	{"by name", [3]string{"", "b09-red", ""}, [3]string{"", "b09-red.green", ""}},
	{"by prefix", [3]string{"b09-red", "user", ""}, [3]string{"b09-green", "user", ""}},
	{"by schema", [3]string{"", "b09", "1"}, [3]string{"", "b09", "2"}},
}

// The case's first Right. Each namespace is on two nodes, which stand for two processes; both
// caches of a node have one client.
func TestB09_TwoNamespacesNeverGetEachOthersValue(t *testing.T) {
	server := redistest.Shared(t)
	for _, ns := range namespaces {
		t.Run(ns.name, func(t *testing.T) {
			var all []*cache.Cache[string, string]
			var loads [2]atomic.Int64
			space := func(i int) string { return fmt.Sprint("space", i%2, ":") }
			for range 2 {
				client := server.Client(t)
				for i, n := range [][3]string{ns.a, ns.b} {
					o := settings()
					o.Redis, o.RedisTimeout, o.TTL = client, 5*time.Second, time.Hour
					o.Prefix, o.Schema = n[0], n[2]
					all = append(all, opened(t, n[1], func(_ context.Context, key string) (string, error) {
						loads[i].Add(1)
						return space(i) + key, nil
					}, o))
				}
			}
			rounds := soak(60, 1000)
			for round := range rounds {
				key := strconv.Itoa(round)
				var callers sync.WaitGroup
				for i := range 16 {
					callers.Go(func() {
						if v, err := all[i%4].Get(t.Context(), key); err != nil || v != space(i)+key {
							t.Errorf("got %q, %v, want %s", v, err, space(i)+key)
						}
					})
				}
				callers.Wait()
			}
			for i := range loads {
				equal(t, "loads of "+space(i), int(loads[i].Load()), rounds)
			}
		})
	}
}

// clashing has a cache of one type and, on another node, one of another type under the same
// name, and has callers on both ask for one key for 15 s, one node first or both at once.
func clashing[A, B any](t *testing.T, a A, b B) {
	for _, lead := range []time.Duration{-time.Second, 0, time.Second} {
		t.Run(fmt.Sprintf("%T %v before %T", a, lead, b), func(t *testing.T) {
			inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
				var asking sync.WaitGroup
				var unread [2]int64
				o := settings()
				o.Redis, _ = f.dial()
				asking.Go(asks(t, o, max(0, -lead), a, &unread[0]))
				o.Redis, _ = f.dial()
				asking.Go(asks(t, o, max(0, lead), b, &unread[1]))
				asking.Wait()
				equal(t, "they met each other's entries", unread[0]+unread[1] > 0, true)
				f.check()
			})
		})
	}
}

// asks asks a node of its own again and again for what it loads, and counts the entries that it
// could not read. It is for use in a bubble.
func asks[V any](t *testing.T, o cache.Options, after time.Duration, want V, unread *int64) func() {
	c := opened(t, "b09", func(ctx context.Context, _ string) (V, error) { return want, pass(ctx, 200*time.Millisecond) }, o)
	return func() {
		time.Sleep(after)
		for range 50 {
			var callers sync.WaitGroup
			for range 3 {
				callers.Go(func() {
					if v, err := c.Get(t.Context(), "k"); err != nil || !reflect.DeepEqual(v, want) {
						t.Errorf("got %v, %v, want %v", v, err, want)
					}
				})
			}
			callers.Wait()
			time.Sleep(300 * time.Millisecond)
		}
		*unread = c.Stats().OtherCodec + c.Stats().Undecodable
	}
}

// The case's second Right, across processes: each caller gets a value of its own type. On one
// client the second type is refused, see TestB09_OneNameWithTwoTypesOnOneClientIsRefused. Two
// structs that are both read from the same JSON cannot be told apart: hence Options.Schema.
func TestB09_ATypeClashAcrossProcessesIsNeverAWrongValue(t *testing.T) {
	clashing(t, "seventeen", 17)
	clashing(t, "17", 17)
	clashing(t, "17", []byte("18"))
	clashing(t, 17, record{Tags: []string{"a"}})
	clashing(t, []string{"a"}, map[string]string{"a": "b"})
}

// foreign are what other programs may have left under a key: also what is right as the payload
// of a value.
func foreign(payload string) map[string]string {
	return map[string]string{
		"the payload without a header":    payload,
		"plain text":                      "mallory",
		"a number":                        "17",
		"JSON":                            `{"Tags":["mallory"]}`,
		"another library's JSON envelope": `{"v":` + strconv.Quote(payload) + `,"expires_at":4102444800}`,
		"message pack and a method byte":  "\x81\xa4Tags\x91\xa7mallory\x00",
		"Java's serialization":            "\xac\xed\x00\x05t\x00\x07mallory",
		"PHP's serialization":             `O:8:"stdClass":1:{s:4:"Tags";s:7:"mallory";}`,
		"text as long as a header":        strings.Repeat("mallory ", bodyEnd/8) + payload,
		"an entry of a later format":      "LVE2" + strings.Repeat("0", bodyEnd-4) + payload,
	}
}

// overwriting puts each foreign text under a key without a lifetime, as plain clients do, and
// asks in every way for a value of type V.
func overwriting[V any](t *testing.T, want V, payload string) {
	for name, text := range foreign(payload) {
		for _, known := range []bool{false, true} {
			t.Run(fmt.Sprintf("%T, %s, the server's clock is known: %v", want, name, known), func(t *testing.T) {
				inBubble(t, 0, settings(), func(t *testing.T, f *fleet) {
					down := false
					load := func(context.Context, string) (v V, err error) {
						if down {
							return v, errors.New("no route to the database")
						}
						return want, nil
					}
					o := settings()
					o.Redis, _ = f.dial()
					c := opened(t, "b74", load, o)
					if known {
						_, err := c.Get(t.Context(), "other")
						must(t, err)
					}
					put := func(key string) {
						must(t, f.probe.Set(t.Context(), c.RedisKey(key), text, 0).Err())
					}
					for _, key := range []string{"get", "peek", "refresh", "failing"} {
						put(key)
					}
					if e, ok, err := c.Peek(t.Context(), "peek"); ok || err != nil {
						t.Errorf("Peek finds %+v, %v", e, err)
					}
					loaded := func(v V, err error) {
						if err != nil || !reflect.DeepEqual(v, want) {
							t.Errorf("got %v, %v, want %v", v, err, want)
						}
					}
					loaded(c.Refresh(t.Context(), "refresh"))
					e, err := c.GetEntry(t.Context(), "get")
					loaded(e.Value, err)
					equal(t, "source", e.Source, cache.SourceLoaded)
					down = true
					if v, err := c.Get(t.Context(), "failing"); err == nil {
						t.Errorf("with the source down, got %v", v)
					}
					must(t, f.probe.Del(t.Context(), c.RedisKey("peek")).Err()) // Peek leaves it alone

					o.Redis, _ = f.dial()
					other := opened(t, "b74", load, o)
					e, err = other.GetEntry(t.Context(), "get")
					loaded(e.Value, err)
					equal(t, "source on another node", e.Source, cache.SourceRemote)
					equal(t, "unreadable entries are counted", c.Stats().Undecodable > 0, true)
					f.check()
				})
			})
		}
	}
}

// Right: a miss, and it is overwritten; raw bytes are never returned. TestB72 has what such a
// text costs a crowd.
func TestB74_WhatAnotherProgramStoredIsAMissForEveryType(t *testing.T) {
	overwriting(t, "seventeen", "alice")
	overwriting(t, 1, "17")
	overwriting(t, []byte("seventeen"), "alice")
	overwriting(t, &record{Tags: []string{"a"}}, `{"Tags":["mallory"]}`)
}
