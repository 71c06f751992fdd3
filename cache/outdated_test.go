package cache_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
)

// everywhere runs body on a fleet of so many nodes and on one node without Redis.
func everywhere(t *testing.T, nodes int, o cache.Options, r func() *original, body func(*testing.T, *original, ...*node)) {
	t.Run("with Redis", func(t *testing.T) {
		r := r()
		revalidating(t, nodes, o, r, func(t *testing.T, f *fleet) { body(t, r, f.nodes...) })
	})
	t.Run("without Redis", func(t *testing.T) {
		r := r()
		alone(t, o, r, func(t *testing.T, n *node) { body(t, r, n) })
	})
}

// atRow is a database whose row is of this version, and of which a load takes d.
func atRow(row uint64, d time.Duration) func() *original {
	return func() *original {
		r := newOriginal("v1")
		r.row, r.takes = row, d
		return r
	}
}

// TestAReplicaThatLagsIsLeftAlone: what it brings is not stored, and to ask it again at each read would be
// a stampede.
func TestAReplicaThatLagsIsLeftAlone(t *testing.T) {
	o := settings()
	o.StaleWhileRevalidate = time.Hour
	everywhere(t, 3, o, atRow(0, 5*time.Millisecond), func(t *testing.T, r *original, nodes ...*node) {
		must(t, nodes[0].Set(t.Context(), "k", "v9", cache.RowVersion(9)))
		r.say(result{Value: "v8", RowVersion: 8}, nil)
		time.Sleep(11 * time.Second)
		for range 1000 {
			for _, n := range nodes {
				gets(t, n, "k", "v9")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := r.loads(); n < 2 || n > 8 { // at 0, 0.5, 1.5, 3.5, 7.5 s, a fifth less, and as long as an unbelieved copy rests
			t.Errorf("%d loads in 10 s", n)
		}
	})
}

func TestAReplicaThatLagsIsLeftAloneByEarlyRefreshes(t *testing.T) {
	o := settings()
	o.EarlyRefresh = 100
	everywhere(t, 3, o, atRow(9, 5*time.Millisecond), func(t *testing.T, r *original, nodes ...*node) {
		for _, n := range nodes {
			gets(t, n, "k", "v1")
		}
		r.say(result{Value: "v8", RowVersion: 8}, nil)
		for range 990 {
			for _, n := range nodes {
				gets(t, n, "k", "v1")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := r.loads(); n < 2 || n > 5 {
			t.Errorf("%d loads within one TTL", n)
		}
	})
}

// TestNobodyWaitsInLineForARowThatIsOlder: one node asks the database, and the others are told.
func TestNobodyWaitsInLineForARowThatIsOlder(t *testing.T) {
	r := atRow(9, time.Second)()
	revalidating(t, 8, settings(), r, func(t *testing.T, f *fleet) {
		gets(t, f.nodes[0], "k", "v1")
		r.say(result{Value: "v8", RowVersion: 8}, nil)
		time.Sleep(11 * time.Second)
		began := time.Now()
		var all sync.WaitGroup
		for _, n := range f.nodes {
			all.Go(func() { _, _ = n.Get(t.Context(), "k", cache.Fresh()) })
		}
		all.Wait()
		equal(t, "loads", r.loads(), 2)
		if took := time.Since(began); took < time.Second || took > 1100*time.Millisecond {
			t.Errorf("the longest wait took %v", took)
		}
	})
}

func TestAGetAfterASetReturnsNoOlderRowAsLongAsItIsAtHand(t *testing.T) {
	o := settings()
	o.StaleWhileRevalidate, o.StaleIfError = cache.Off, time.Hour
	everywhere(t, 1, o, atRow(0, 0), func(t *testing.T, r *original, nodes ...*node) {
		must(t, nodes[0].Set(t.Context(), "k", "v9", cache.RowVersion(9)))
		time.Sleep(11 * time.Second)
		r.say(result{Value: "v8", RowVersion: 8}, nil)
		e, err := nodes[0].GetEntry(t.Context(), "k")
		must(t, err)
		equal(t, "value", e.Value, "v9")
		equal(t, "state", e.State, cache.StateStale)
		if e.Err == nil {
			t.Error("nothing says why")
		}
	})
}

// TestARowThatWasMadeAgainBeginsAnew: its versions are lower than those of the row that it replaces.
func TestARowThatWasMadeAgainBeginsAnew(t *testing.T) {
	everywhere(t, 1, settings(), atRow(10, 0), func(t *testing.T, r *original, nodes ...*node) {
		n := nodes[0]
		gets(t, n, "k", "v1")
		time.Sleep(11 * time.Second)
		r.edit(func() { r.row = 0 }) // deleted
		time.Sleep(time.Hour)
		if _, err := n.Get(t.Context(), "k"); !errors.Is(err, cache.ErrNotFound) {
			t.Fatalf("got %v", err)
		}
		time.Sleep(time.Hour)
		r.edit(func() { r.row, r.value = 1, "new" })
		before := r.loads()
		for range 100 {
			gets(t, n, "k", "new")
			time.Sleep(10 * time.Millisecond)
		}
		equal(t, "loads", r.loads()-before, 1)
		must(t, n.Set(t.Context(), "k", "newer", cache.RowVersion(2)))
		gets(t, n, "k", "newer")
	})
}

func TestASetOfARowThatWasMadeAgainIsSeen(t *testing.T) {
	o := settings()
	o.NegativeTTL = 5 * time.Second
	everywhere(t, 1, o, atRow(7, 0), func(t *testing.T, r *original, nodes ...*node) {
		n := nodes[0]
		gets(t, n, "k", "v1")
		r.edit(func() { r.row = 0 })
		time.Sleep(11 * time.Second)
		_, _ = n.Get(t.Context(), "k") // stale; the refresh finds nothing
		time.Sleep(time.Second)
		if _, err := n.Get(t.Context(), "k"); !errors.Is(err, cache.ErrNotFound) {
			t.Fatal(err)
		}
		must(t, n.Set(t.Context(), "k", "new", cache.RowVersion(1)))
		gets(t, n, "k", "new")
	})
}

func TestARowVersionOutlivesASetWithoutOne(t *testing.T) {
	alike(t, settings(), func(t *testing.T, s *source, n *node) {
		must(t, n.Set(t.Context(), "k", "v9", cache.RowVersion(9)))
		must(t, n.Set(t.Context(), "k", "unversioned"))
		must(t, n.Set(t.Context(), "k", "v5", cache.RowVersion(5)))
		gets(t, n, "k", "unversioned")
	})
}

// TestOfManySetsAtOnceTheNewestRowStays: in whatever order they come.
func TestOfManySetsAtOnceTheNewestRowStays(t *testing.T) {
	alike(t, settings(), func(t *testing.T, s *source, n *node) {
		for round := range 50 {
			var all sync.WaitGroup
			for row := range uint64(20) {
				all.Go(func() {
					if err := n.Set(t.Context(), "k", value("k", int(row)+1), cache.RowVersion(uint64(round)*20+row+1)); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			gets(t, n, "k", value("k", 20))
		}
	})
}

// TestARowVersionEndsWithItsValue: what may not be served any more says nothing of what may.
func TestARowVersionEndsWithItsValue(t *testing.T) {
	everywhere(t, 1, settings(), atRow(10, 0), func(t *testing.T, r *original, nodes ...*node) {
		gets(t, nodes[0], "k", "v1")
		r.edit(func() { r.row, r.value = 1, "new" })
		time.Sleep(time.Hour)
		for range 3 {
			gets(t, nodes[0], "k", "new")
		}
		equal(t, "loads", r.loads(), 2)
	})
}
