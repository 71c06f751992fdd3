package cache_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// aboutRed matches what is asked, or changed, of the generation of the tag "red".
func aboutRed(c redis.Cmder) bool { return redistest.Contains("!:red")(c) }

// faulty gives each node its faults.
func (f *fleet) faulty() {
	for _, n := range f.nodes {
		n.faults = redistest.NewFaults(f.t)
		n.client.AddHook(n.faults)
	}
}

// inFaultyBubble is inTaggedBubble with faults, and with loads that take a millisecond.
func inFaultyBubble(t *testing.T, nodes int, o cache.Options, body func(*testing.T, *fleet)) {
	t.Helper()
	inTaggedBubble(t, nodes, o, func(t *testing.T, f *fleet, _ ears) {
		f.faulty()
		f.query = takes(time.Millisecond)
		body(t, f)
	})
}

// An answer about a tag's generation may come after the news of its end. The second node has not met the tag, which has ended
// once before.
func TestAnAnswerFromBeforeTheEndOfATagIsNotBelieved(t *testing.T) {
	inSecondBubble := func(t *testing.T, body func(t *testing.T, f *fleet, n *node)) {
		inFaultyBubble(t, 2, hours(), func(t *testing.T, f *fleet) {
			must(t, f.nodes[0].InvalidateTag(t.Context(), "red"))
			time.Sleep(5 * time.Minute)
			body(t, f, f.nodes[1])
		})
	}
	t.Run("which another node has told", func(t *testing.T) {
		inSecondBubble(t, func(t *testing.T, f *fleet, n *node) {
			late := n.faults.HoldReply(aboutRed).Times(1)
			c := start(t.Context(), 1, "red-0", n)
			must(t, late.Wait(t.Context()))
			synctest.Wait()
			f.write("red-0")
			must(t, f.nodes[0].InvalidateTag(t.Context(), "red"))
			time.Sleep(10 * time.Millisecond)
			late.Release(t.Context())
			c.wait()
			gets(t, n, "red-0", value("red-0", 2))
			gets(t, f.nodes[0], "red-0", value("red-0", 2))
		})
	})
	t.Run("by this node itself", func(t *testing.T) {
		inSecondBubble(t, func(t *testing.T, f *fleet, n *node) {
			hold := n.faults.Hold(redistest.All(aboutRed, isEnd)).Times(1)
			ended := make(chan error, 1)
			go func() { ended <- n.InvalidateTag(t.Context(), "red") }()
			must(t, hold.Wait(t.Context()))
			late := n.faults.HoldReply(aboutRed).Times(1)
			c := start(t.Context(), 1, "red-0", n)
			must(t, late.Wait(t.Context()))
			synctest.Wait()
			f.write("red-0")
			time.Sleep(time.Millisecond) // no two scripts run in one microsecond
			hold.Release(t.Context())
			must(t, <-ended)
			late.Release(t.Context())
			c.wait()
			gets(t, n, "red-0", value("red-0", 2))
		})
	})
}

func TestASetAcrossAClearKeepsNothing(t *testing.T) {
	inFaultyBubble(t, 1, hours(), func(t *testing.T, f *fleet) {
		n := f.nodes[0]
		hold := n.faults.Hold(isSeizure).Times(1)
		set := make(chan error, 1)
		go func() { set <- n.Set(t.Context(), "red-0", value("red-0", 1)) }()
		must(t, hold.Wait(t.Context()))
		f.write("red-0")
		must(t, n.Clear(t.Context()))
		hold.Release(t.Context())
		must(t, <-set)
		time.Sleep(time.Minute)
		gets(t, n, "red-0", value("red-0", 2))
	})
}

// Nobody tells the other node, and the sender does not try again.
func TestWhatNobodyWasToldOfEndsWithinTheBound(t *testing.T) {
	o := twoSeconds()
	o.RetryDeletes = cache.Off
	for _, m := range mass {
		t.Run(m.name, func(t *testing.T) {
			inFaultyBubble(t, 2, o, func(t *testing.T, f *fleet) {
				gets(t, f.nodes[0], "red-0", value("red-0", 1))
				gets(t, f.nodes[1], "red-0", value("red-0", 1))
				f.write("red-0")
				silent := f.nodes[0].faults.Fail(isMessage, nil)
				i, ok := errors.AsType[*cache.InvalidationError](m.end(t.Context(), f.nodes[0]))
				silent.Clear()
				if !ok {
					t.Fatal("no InvalidationError")
				}
				equal(t, "bound", i.Bound, o.LocalTTL)
				for range int(i.Bound / (10 * time.Millisecond)) { // by hits, which keep it believed
					time.Sleep(10 * time.Millisecond)
					_, err := f.nodes[1].Get(t.Context(), "red-0")
					must(t, err)
				}
				if m.soft {
					time.Sleep(10 * time.Millisecond) // the last hit has it refreshed
				}
				gets(t, f.nodes[1], "red-0", value("red-0", 2))
			})
		})
	}
}

// A replica that lags, or an import that was restored, has an older row than what was ended. As after a Delete, that
// is what there is.
func TestAfterAClearAnOlderRowIsStored(t *testing.T) {
	for _, m := range append([]massEnd{{name: "Delete", end: func(ctx context.Context, n *node) error { return n.Delete(ctx, "k") }}}, mass[:2]...) {
		t.Run(m.name, func(t *testing.T) {
			inBubble(t, 0, hours(), func(t *testing.T, f *fleet) {
				var row atomic.Uint64
				row.Store(9)
				n := f.loadsBy(func() loader.Result[string] {
					return loader.Result[string]{Value: "v", RowVersion: row.Load(), Tags: []string{"red"}}
				})
				time.Sleep(time.Second)
				gets(t, n, "k", "v")
				row.Store(8)
				must(t, m.end(t.Context(), n))
				time.Sleep(10 * time.Millisecond)
				for range 5 {
					gets(t, n, "k", "v")
					time.Sleep(10 * time.Millisecond)
				}
				equal(t, "loads", n.Stats().Loads, 2)
				row.Store(7)
				must(t, n.Expire(t.Context(), "k"))
				gets(t, n, "k", "v")
				time.Sleep(10 * time.Millisecond)
				equal(t, "refused, now that 8 is stored", n.Stats().Refused, 1)
			})
		})
	}
}

// loadsBy adds a node whose loads answer so.
func (f *fleet) loadsBy(answer func() loader.Result[string]) *node {
	client, l := f.dial()
	o := f.options
	o.Redis = client
	c, err := cache.New(f.name(), loader.Revalidate(func(context.Context, string, *loader.Previous[string]) (loader.Result[string], error) {
		return answer(), nil
	}), o)
	must(f.t, err)
	f.t.Cleanup(func() { must(f.t, c.Close()) })
	return &node{Cache: c, client: client, link: l}
}
