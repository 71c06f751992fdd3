package cache_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
)

// tagged makes a fleet whose loads tag their values: with what stands before the dash in the key, and with
// "all". With no Redis it is one node.
func (f *fleet) tagged(nodes int, o cache.Options, withRedis bool) (all ears) {
	for range nodes {
		e := &ear{}
		n := &node{}
		if withRedis {
			n.link = f.mini.Link()
			n.client = n.link.Client(f.t, roomy, e.listening)
			n.client.AddHook(watcher{f})
			o.Redis = n.client
		}
		var err error
		n.Cache, err = cache.New(f.name(), loader.Revalidate(f.loadTagged), o)
		must(f.t, err)
		f.t.Cleanup(func() { must(f.t, n.Close()) })
		f.nodes = append(f.nodes, n)
		all = append(all, e)
	}
	return all
}

func (f *fleet) loadTagged(ctx context.Context, key string, _ *loader.Previous[string]) (loader.Result[string], error) {
	v, err := f.load(ctx, key)
	return loader.Result[string]{Value: v, Tags: tagsOf(key)}, err
}

func tagsOf(key string) []string {
	group, _, _ := strings.Cut(key, "-")
	return []string{group, "all"}
}

// inTaggedBubble is inBubbleWithEars with such nodes.
func inTaggedBubble(t *testing.T, nodes int, o cache.Options, body func(*testing.T, *fleet, ears)) {
	t.Helper()
	inBubble(t, 0, o, func(t *testing.T, f *fleet) {
		all := f.tagged(nodes, o, true)
		time.Sleep(time.Millisecond)
		must(t, f.nodes[0].Delete(t.Context(), "the first message"))
		time.Sleep(time.Second)
		body(t, f, all)
	})
}

// massEnd is a way in which one call ends many entries.
type massEnd struct {
	name      string
	end       func(context.Context, *node) error
	red, blue bool // which of them
	soft      bool // the old value is served stale
}

var mass = []massEnd{
	{"Clear", func(ctx context.Context, n *node) error { return n.Clear(ctx) }, true, true, false},
	{"InvalidateTag", func(ctx context.Context, n *node) error { return n.InvalidateTag(ctx, "red") }, true, false, false},
	{"InvalidateTag of all", func(ctx context.Context, n *node) error { return n.InvalidateTag(ctx, "all") }, true, true, false},
	{"ExpireTag", func(ctx context.Context, n *node) error { return n.ExpireTag(ctx, "red") }, true, false, true},
}

// colours are keys of the two groups, some loaded and some set, in memory on all nodes.
func (f *fleet) colours(t *testing.T) (red, blue []string) {
	for i := range 2 {
		for _, group := range []string{"red", "blue"} {
			key := fmt.Sprint(group, "-", i)
			if i%2 == 0 {
				must(t, f.nodes[len(f.nodes)-1].Set(t.Context(), key, value(key, 1), cache.Tags(tagsOf(key)...)))
			}
			for _, n := range f.nodes {
				gets(t, n, key, value(key, 1))
			}
			if group == "red" {
				red = append(red, key)
			} else {
				blue = append(blue, key)
			}
		}
	}
	return red, blue
}

// ended checks on all nodes what Get returns first, and what in the end.
func (f *fleet) ended(t *testing.T, keys []string, ended, soft bool) {
	t.Helper()
	for _, key := range keys {
		for i, n := range f.nodes {
			e, err := n.GetEntry(t.Context(), key)
			must(t, err)
			switch {
			case !ended && (e.Value != value(key, 1) || e.State != cache.StateFresh):
				t.Errorf("node %d got %+v of %s, which was left alone", i, e, key)
			case ended && !soft && e.Value != value(key, 2):
				t.Errorf("node %d got %+v of %s, which has ended", i, e, key)
			case ended && soft && e.Value == value(key, 1) && e.State != cache.StateStale:
				t.Errorf("node %d got %+v of %s, whose freshness has ended", i, e, key)
			}
		}
	}
}

// allEnded checks that what a call is to end has, that the rest stays, and what it cost. Who was served
// something stale sees to the new value; the other nodes have it from Redis a hit later. It is for use in a bubble.
func (f *fleet) allEnded(t *testing.T, red, blue []string, m massEnd) {
	t.Helper()
	f.ended(t, red, m.red, m.soft)
	f.ended(t, blue, m.blue, m.soft)
	if m.soft {
		time.Sleep(100 * time.Millisecond)
		f.ended(t, red, m.red, true)
	}
	time.Sleep(100 * time.Millisecond)
	f.ended(t, red, m.red, false)
	f.counted(t, red, m.red)
	f.counted(t, blue, m.blue)
}

// counted checks how often the keys were loaded after they were made, by Set every other one.
func (f *fleet) counted(t *testing.T, keys []string, ended bool) {
	t.Helper()
	for i, key := range keys {
		want := i % 2
		if ended {
			want++
		}
		equal(t, "loads of "+key, f.queries(key), want)
	}
}

func TestOneCallEndsManyEntriesOnAllNodes(t *testing.T) {
	for _, m := range mass {
		t.Run(m.name, func(t *testing.T) {
			inTaggedBubble(t, 3, hours(), func(t *testing.T, f *fleet, _ ears) {
				f.query = takes(time.Millisecond)
				red, blue := f.colours(t)
				for _, key := range append(red, blue...) {
					f.write(key)
				}
				must(t, m.end(t.Context(), f.nodes[0]))
				time.Sleep(time.Microsecond) // a load of the very same instant is not kept
				f.allEnded(t, red, blue, m)
			})
		})
	}
}

func TestOneCallEndsManyEntriesThoughMessagesAreLost(t *testing.T) {
	for _, m := range mass {
		for _, l := range losses {
			t.Run(m.name+" "+l.name, func(t *testing.T) {
				inTaggedBubble(t, 3, hours(), func(t *testing.T, f *fleet, all ears) {
					f.query = takes(time.Millisecond)
					red, blue := f.colours(t)
					for _, key := range append(red, blue...) {
						f.write(key)
					}
					l.lose(t, f, all, func() { must(t, m.end(t.Context(), f.nodes[0])) })
					time.Sleep(l.bound)
					f.allEnded(t, red, blue, m)
				})
			})
		}
	}
}

// A message that was lost ends, with the namespace, all that is in memory; what is loaded anew must stay.
func TestWhatIsLoadedAfterAClearStays(t *testing.T) {
	whateverIsCleared := func(t *testing.T, f *fleet, lose func(func())) {
		f.query = takes(time.Millisecond)
		f.colours(t)
		lose(func() { must(t, f.nodes[0].Clear(t.Context())) })
		time.Sleep(time.Second)
		for _, n := range f.nodes {
			gets(t, n, "red-0", value("red-0", 1))
		}
		time.Sleep(3 * time.Second)
		for _, n := range f.nodes {
			gets(t, n, "red-0", value("red-0", 1))
		}
		equal(t, "loads", f.queries("red-0"), 1) // it had been set
	}
	t.Run("heard", func(t *testing.T) {
		inTaggedBubble(t, 3, hours(), func(t *testing.T, f *fleet, _ ears) {
			whateverIsCleared(t, f, func(clear func()) { clear() })
		})
	})
	for _, l := range losses {
		t.Run("lost "+l.name, func(t *testing.T) {
			inTaggedBubble(t, 3, hours(), func(t *testing.T, f *fleet, all ears) {
				whateverIsCleared(t, f, func(clear func()) { l.lose(t, f, all, clear) })
			})
		})
	}
}

// Redis has lost the generations of the namespace, of a tag, or all. What carried them is as good as gone:
// nothing that they had ended comes back, and what is loaded anew stays.
func TestALostGenerationBringsNothingBack(t *testing.T) {
	for name, lost := range map[string]string{"the namespace's": "!", "a tag's": "!:red", "the other tag's": "!:all"} {
		for _, deaf := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " deaf ", deaf), func(t *testing.T) {
				inTaggedBubble(t, 2, hours(), func(t *testing.T, f *fleet, all ears) {
					f.query = takes(time.Millisecond)
					f.colours(t)
					raw := f.raw("red-1")
					f.write("red-1")
					if deaf {
						all.silence()
					}
					must(t, f.nodes[0].Clear(t.Context()))
					must(t, f.nodes[0].InvalidateTag(t.Context(), "red"))
					must(t, f.nodes[0].InvalidateTag(t.Context(), "all"))
					redisKey := f.nodes[0].RedisKey("red-1")
					generation := strings.TrimSuffix(redisKey, ":red-1") + lost
					equal(t, "generations there were", f.probe.Del(t.Context(), generation).Val(), 1)
					time.Sleep(time.Second)
					f.tagged(1, f.options, true) // one that knows nothing yet
					must(t, f.probe.Set(t.Context(), redisKey, raw, time.Minute).Err())
					for range 2 {
						for _, n := range f.nodes {
							gets(t, n, "red-1", value("red-1", 2))
						}
						time.Sleep(3 * time.Second)
					}
					if f.queries("red-1") > 3 {
						t.Errorf("%d loads", f.queries("red-1"))
					}
				})
			})
		}
	}
}

// The generation is lost, and a node that has heard of a later one does not believe the new, lower one for ever.
func TestAClearAfterALostGenerationIsHeard(t *testing.T) {
	inTaggedBubble(t, 2, hours(), func(t *testing.T, f *fleet, _ ears) {
		f.query = takes(time.Millisecond)
		for round := range 3 {
			gets(t, f.nodes[1], "red-1", value("red-1", 1+round))
			f.write("red-1")
			must(t, f.probe.Del(t.Context(), strings.TrimSuffix(f.nodes[0].RedisKey("red-1"), ":red-1")+"!").Err())
			must(t, f.nodes[0].Clear(t.Context()))
			time.Sleep(time.Millisecond)
		}
		gets(t, f.nodes[1], "red-1", value("red-1", 4))
	})
}
