package cache_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
)

// duringLoad are the calls that end what is being loaded. Clear is known to concern it; a tag is only
// when the load has ended.
var duringLoad = []massEnd{mass[0], mass[1], mass[2], mass[3]}

// endDuringLoad has node 0 load a key for 300 ms, and a node end it meanwhile. What the load brings is not
// current any more, wherever it ends up, and what begins afterwards gets the new value; or, where only the
// freshness has ended, the old one as stale. It is for use in a bubble.
func endDuringLoad(t *testing.T, f *fleet, by *node, m massEnd, lose func(func())) {
	f.query = takes(300 * time.Millisecond)
	before := start(t.Context(), 10, "red-1", f.nodes[0])
	time.Sleep(100 * time.Millisecond)
	f.write("red-1")
	lose(func() { must(t, m.end(t.Context(), by)) })
	time.Sleep(time.Millisecond)
	var after sync.WaitGroup
	for range 10 {
		after.Go(func() { getsNew(t, by, m) })
	}
	after.Wait()
	for _, g := range before.wait() {
		must(t, g.err)
	}
	time.Sleep(time.Second)
	for range 2 {
		for _, n := range f.nodes {
			getsNew(t, n, m)
		}
		time.Sleep(time.Second)
	}
	for _, n := range f.nodes {
		gets(t, n, "red-1", value("red-1", 2))
	}
}

func getsNew(t *testing.T, n *node, m massEnd) {
	t.Helper()
	e, err := n.GetEntry(t.Context(), "red-1")
	if stale := m.soft && e.State == cache.StateStale; err != nil || e.Value != value("red-1", 2) && !stale {
		t.Errorf("got %+v, %v", e, err)
	}
}

func TestWhatIsBeingLoadedEndsToo(t *testing.T) {
	for _, m := range duringLoad {
		for by, who := range []string{"same node", "other node"} {
			for _, met := range []bool{false, true} {
				t.Run(fmt.Sprint(m.name, " on the ", who, ", tags known: ", met), func(t *testing.T) {
					inTaggedBubble(t, 2, hours(), func(t *testing.T, f *fleet, _ ears) {
						f.query = takes(0)
						if met {
							f.fans(t, "red-other", 1)
						}
						endDuringLoad(t, f, f.nodes[by], m, func(end func()) { end() })
						if loads := f.queries("red-1"); loads > 3 { // a load that began before the message came is not kept
							t.Errorf("%d loads", loads)
						}
					})
				})
			}
		}
	}
}

func TestWhatIsBeingLoadedEndsThoughMessagesAreLost(t *testing.T) {
	for _, m := range duringLoad {
		for _, l := range losses {
			for _, met := range []bool{false, true} {
				if !met && l.name != losses[0].name {
					continue
				}
				t.Run(fmt.Sprint(m.name, " ", l.name, ", tags known: ", met), func(t *testing.T) {
					inTaggedBubble(t, 2, hours(), func(t *testing.T, f *fleet, all ears) {
						f.query = takes(0)
						if met {
							f.fans(t, "red-other", 1)
						}
						endDuringLoad(t, f, f.nodes[1], m, func(end func()) { l.lose(t, f, all, end) })
					})
				})
			}
		}
	}
}

func TestWhatIsBeingLoadedEndsWithoutRedis(t *testing.T) {
	for _, m := range duringLoad {
		t.Run(m.name, func(t *testing.T) {
			inBubble(t, 0, hours(), func(t *testing.T, f *fleet) {
				o := hours()
				o.Redis = nil
				f.tagged(1, o, false)
				endDuringLoad(t, f, f.nodes[0], m, func(end func()) { end() })
				equal(t, "loads", f.queries("red-1"), 2)
			})
		})
	}
}

// What is not of the group is not concerned: its load goes on, and is kept.
func TestATagLeavesOtherLoadsAlone(t *testing.T) {
	inTaggedBubble(t, 2, hours(), func(t *testing.T, f *fleet, _ ears) {
		f.query = takes(300 * time.Millisecond)
		before := start(t.Context(), 10, "blue-1", f.nodes...)
		time.Sleep(100 * time.Millisecond)
		must(t, f.nodes[0].InvalidateTag(t.Context(), "red"))
		must(t, f.nodes[1].ExpireTag(t.Context(), "red"))
		before.wait()
		for _, n := range f.nodes {
			e, err := n.GetEntry(t.Context(), "blue-1")
			if err != nil || e.Source != cache.SourceLocal || e.State != cache.StateFresh {
				t.Errorf("got %+v, %v", e, err)
			}
		}
		equal(t, "loads", f.queries(), 1)
	})
}

// The generation of a tag is lost between its end and the end of the load, which is the first that this node hears
// of the tag. A missing generation matches nothing: what was read before it was made anew must not be kept.
func TestATagWhoseGenerationIsLostDuringALoadBringsNothingBack(t *testing.T) {
	inTaggedBubble(t, 2, hours(), func(t *testing.T, f *fleet, _ ears) {
		f.query = takes(300 * time.Millisecond)
		before := start(t.Context(), 1, "red-1", f.nodes[0])
		time.Sleep(100 * time.Millisecond)
		f.write("red-1")
		must(t, f.nodes[1].InvalidateTag(t.Context(), "red"))
		key := strings.TrimSuffix(f.nodes[0].RedisKey("red-1"), ":red-1") + "!:red"
		equal(t, "generations there were", f.probe.Del(t.Context(), key).Val(), 1)
		before.wait()
		time.Sleep(time.Millisecond)
		for _, n := range f.nodes {
			gets(t, n, "red-1", value("red-1", 2))
		}
	})
}
