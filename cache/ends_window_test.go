package cache_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/levee-cache/levee/loader"
)

func TestWithoutRedisTheEndOfATagsFreshnessHasItRefreshedOnce(t *testing.T) {
	inBubble(t, 0, hours(), func(t *testing.T, f *fleet) {
		f.tagged(1, f.options, false)
		n := f.nodes[0]
		f.query = takes(time.Millisecond)
		gets(t, n, "red-0", value("red-0", 1))
		f.write("red-0")
		time.Sleep(time.Second)
		must(t, n.ExpireTag(t.Context(), "red"))
		time.Sleep(time.Microsecond) // a load of the very same instant is not kept
		gets(t, n, "red-0", value("red-0", 1))
		time.Sleep(10 * time.Millisecond)
		for range 20 {
			gets(t, n, "red-0", value("red-0", 2))
			time.Sleep(time.Second)
		}
		equal(t, "loads", f.queries("red-0"), 2)
		f.nodes = nil
		f.checked.Do(func() {}) // there is no Redis to check
	})
}

// The old load holds the lease; nobody is to wait for a value that nobody may have.
func TestAfterAClearNobodyWaitsForAnOlderLoad(t *testing.T) {
	for who, i := range map[string]int{"on its node": 0, "on another": 1} {
		t.Run(who, func(t *testing.T) {
			inTaggedBubble(t, 2, hours(), func(t *testing.T, f *fleet, _ ears) {
				f.query = func(ctx context.Context, _ string, n int) error {
					if n == 1 {
						return pass(ctx, 4900*time.Millisecond)
					}
					return pass(ctx, time.Millisecond)
				}
				old := start(t.Context(), 1, "red-0", f.nodes[0])
				time.Sleep(10 * time.Millisecond)
				f.write("red-0")
				must(t, f.nodes[1-i].Clear(t.Context()))
				time.Sleep(time.Millisecond) // the message's way
				began := time.Now()
				gets(t, f.nodes[i], "red-0", value("red-0", 2))
				within(t, "a Get after it", time.Since(began), 100*time.Millisecond)
				old.wait()
				time.Sleep(time.Second)
				gets(t, f.nodes[0], "red-0", value("red-0", 2))
				equal(t, "loads", f.queries("red-0"), 2)
			})
		})
	}
}

func TestASecondEndOfFreshnessDoesNotLengthenTheWindows(t *testing.T) {
	for how, expire := range map[string]func(context.Context, *node) error{
		"Expire":    func(ctx context.Context, n *node) error { return n.Expire(ctx, "red-0") },
		"ExpireTag": func(ctx context.Context, n *node) error { return n.ExpireTag(ctx, "red") },
		"ExpireTag and then of another": func(ctx context.Context, n *node) error {
			if n.Stats().Failures == 0 {
				return n.ExpireTag(ctx, "red")
			}
			return n.ExpireTag(ctx, "all")
		},
	} {
		t.Run(how, func(t *testing.T) {
			inFaultyBubble(t, 1, hours(), func(t *testing.T, f *fleet) {
				n := f.nodes[0]
				gets(t, n, "red-0", value("red-0", 1))
				f.query = func(context.Context, string, int) error { return errors.New("down") }
				must(t, expire(t.Context(), n))
				for range 3 {
					time.Sleep(9 * time.Second)
					gets(t, n, "red-0", value("red-0", 1)) // within the 30 s
					must(t, expire(t.Context(), n))
				}
				time.Sleep(4 * time.Second)
				if v, err := n.Get(t.Context(), "red-0"); err == nil {
					t.Errorf("got %q 31 s after the first end, the stale window is 30 s long", v)
				}
			})
		})
	}
}

// Values that are not stored are loaded once at a time on a node, whatever ends meanwhile.
func TestTheEndOfAnotherTagBeginsNoSecondLoad(t *testing.T) {
	inBubble(t, 0, hours(), func(t *testing.T, f *fleet) {
		n := f.loadsBy(func() loader.Result[string] {
			time.Sleep(time.Second)
			return loader.Result[string]{Value: "v", NoStore: true, Tags: []string{"its own"}}
		})
		must(t, n.InvalidateTag(t.Context(), "the first message"))
		time.Sleep(time.Second)
		gets(t, n, "k", "v")
		all := &calls{}
		for range 20 {
			all.get(t.Context(), n, "k")
			time.Sleep(time.Millisecond)
			must(t, n.InvalidateTag(t.Context(), "another"))
		}
		all.wait()
		equal(t, "loads", n.Stats().Loads, 2)
	})
}

// Who asks after the end of a tag may wait for a load that began before it; if the value turns out to carry
// the tag, it is not for him.
func TestWhoComesAfterTheEndOfATagGetsNothingFromBefore(t *testing.T) {
	for what, nostore := range map[string]bool{"stored": false, "not stored": true} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, 0, hours(), func(t *testing.T, f *fleet) {
				var loads, row atomic.Int64
				n := f.loadsBy(func() loader.Result[string] {
					loads.Add(1)
					read := fmt.Sprint("v", row.Load())
					time.Sleep(time.Second)
					return loader.Result[string]{Value: read, NoStore: nostore, Tags: []string{"red"}}
				})
				must(t, n.InvalidateTag(t.Context(), "the first message"))
				time.Sleep(time.Second)
				before := start(t.Context(), 1, "k", n)
				time.Sleep(100 * time.Millisecond)
				row.Store(1)
				must(t, n.InvalidateTag(t.Context(), "red"))
				after := start(t.Context(), 5, "k", n)
				time.Sleep(100 * time.Millisecond)
				must(t, n.InvalidateTag(t.Context(), "red")) // theirs began before this one: it is all the same to them
				for _, g := range before.wait() {
					equal(t, "value of who came before", g.value, "v0")
				}
				for _, g := range after.wait() {
					equal(t, "value of who came after", g.value, "v1")
				}
				equal(t, "loads", loads.Load(), 2)
			})
		})
	}
}
