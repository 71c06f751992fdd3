package cache

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/levee-cache/levee/internal/link"
	"github.com/levee-cache/levee/rebuild"
)

const (
	smallBudget = 64 << 10
	roomyBudget = 64 << 20
)

// tierOf makes a local tier that is closed when the test ends.
func tierOf[V any](t testing.TB, budget int64) *local[V] {
	t.Helper()
	l, err := newLocal[V](budget)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// heldAs is a copy of a key, with the hash of the text.
func heldAs[V any](text string, v V) *held[V] {
	return &held[V]{text: text, hash: hashOf(text), value: v}
}

func keyOf(text string) rebuild.Key { return rebuild.Key{Text: text, Hash: hashOf(text)} }

// asking is a time at which a lookup goes past the table to ristretto.
const asking = link.Instant(0)

// everyWay looks a key up at times that ask ristretto and at times that do not.
func everyWay[V any](l *local[V], text string) (all []*held[V]) {
	for now := link.Instant(1); now <= 2*sampleEvery; now++ {
		all = append(all, l.lookup(hashOf(text), text, now))
	}
	return all
}

// finds fails unless every lookup of the key brings want, or nothing for nil.
func finds[V any](t *testing.T, l *local[V], text string, want *held[V]) {
	t.Helper()
	for i, h := range everyWay(l, text) {
		if h != want {
			t.Fatalf("lookup %d of %q brings %v, want %v", i, text, h, want)
		}
	}
}

func TestB03_WhatWasJustKeptIsFound(t *testing.T) {
	l := tierOf[int](t, roomyBudget)
	for i := range 10_000 {
		h := heldAs(fmt.Sprint(i), i)
		l.keep(h)
		if got := l.lookup(h.hash, h.text, link.Instant(i)); got != h {
			t.Fatalf("key %d: %v", i, got)
		}
	}
}

func TestTheNewestCopyIsFound(t *testing.T) {
	l := tierOf[int](t, roomyBudget)
	for i := range 1000 {
		h := heldAs("k", i)
		l.keep(h)
		finds(t, l, "k", h)
		if i%10 == 0 {
			l.tier.Wait() // also once ristretto has it
			finds(t, l, "k", h)
		}
	}
}

func TestWhatWasDroppedIsGone(t *testing.T) {
	l := tierOf[int](t, roomyBudget)
	for i := range 1000 {
		l.keep(heldAs("k", i))
		if i%2 == 0 {
			l.tier.Wait()
			everyWay(l, "k") // brings it into the table
		}
		l.drop(keyOf("k"))
		finds(t, l, "k", nil)
	}
	l.tier.Wait()
	finds(t, l, "k", nil)
}

func TestADropLeavesTheOthersAlone(t *testing.T) {
	l := tierOf[int](t, roomyBudget)
	a, b := heldAs("a", 1), heldAs("b", 2)
	l.keep(a)
	l.keep(b)
	l.drop(keyOf("a"))
	finds(t, l, "a", nil)
	finds(t, l, "b", b)
}

func TestNoLocalTierHoldsNothing(t *testing.T) {
	l, err := newLocal[int](0)
	must(t, err)
	l.keep(heldAs("k", 1))
	finds(t, l, "k", nil)
	l.drop(keyOf("k"))
	l.close()
}

// haltingTier is a local tier whose ristretto stops at each barrier in its queue.
type haltingTier struct {
	*local[int]
	reached, pass       chan struct{}
	betweenDeleteAndSet func() // is called once
}

const barrier = "barrier"

func haltingTierOf(t *testing.T, budget int64) *haltingTier {
	t.Helper()
	l := &haltingTier{local: tierOf[int](t, budget), reached: make(chan struct{}, 8), pass: make(chan struct{})}
	t.Cleanup(func() { close(l.pass) })
	l.tier.Close()
	config := l.config(budget)
	config.OnReject = func(i *ristretto.Item[*held[int]]) {
		if i.Value.text == barrier {
			l.reached <- struct{}{}
			<-l.pass
			return
		}
		l.refused.Add(1)
	}
	config.OnExit = func(h *held[int]) {
		l.hot.remove(h)
		if f := l.betweenDeleteAndSet; h == nil && f != nil { // a delete of what is not shown
			l.betweenDeleteAndSet = nil
			f()
		}
	}
	tier, err := ristretto.NewCache(config)
	must(t, err)
	l.tier = tier
	return l
}

// barrier puts one into ristretto's queue: it is too large to be taken.
func (l *haltingTier) barrier() { l.tier.Set(0, heldAs(barrier, 0), l.tier.MaxCost()+1) }

// next lets ristretto go on to the next barrier.
func (l *haltingTier) next() {
	l.pass <- struct{}{}
	<-l.reached
}

// betweens are what may come between two changes of a key.
var betweens = map[string]func(l *haltingTier){
	"at once": func(*haltingTier) {},
	"after a burst that fills the map of recent loads": func(l *haltingTier) {
		for i := range 100 {
			l.keep(heldAs(fmt.Sprint(i), i))
		}
	},
}

// ristretto applies the set of a new key after the drop that followed it: for a moment the old
// copy stands there again. What is kept after that stays, though the delete is still queued.
func TestASetThatLandsAfterADropBringsNothingBack(t *testing.T) {
	for situation, between := range betweens {
		t.Run(situation, func(t *testing.T) {
			l := haltingTierOf(t, smallBudget)
			l.barrier()
			<-l.reached
			l.keep(heldAs("first", 1))
			l.barrier()
			old := heldAs("k", 1)
			l.keep(old)
			finds(t, l.local, "k", old)
			l.barrier()
			l.next() // what came first is taken out of the queue
			between(l)
			l.drop(keyOf("k"))
			l.next()
			if h, ok := l.tier.Get(old.hash); !ok || h != old {
				t.Fatal("the schedule was not forced: ristretto does not have the old copy")
			}
			finds(t, l.local, "k", nil)

			newer := heldAs("k", 2)
			l.keep(newer)
			finds(t, l.local, "k", newer)
			l.barrier()
			l.next()
			l.recent.drop(newer.hash)
			finds(t, l.local, "k", newer)
		})
	}
}

// Two sets of a new key are in ristretto's queue: it applies the first, and would take the second
// for an update, which it does not make.
func TestASetThatLandsAfterANewerKeepDoesNotHideIt(t *testing.T) {
	for situation, between := range betweens {
		t.Run(situation, func(t *testing.T) {
			l := haltingTierOf(t, smallBudget)
			l.barrier()
			<-l.reached
			old, newer := heldAs("k", 1), heldAs("k", 2)
			l.keep(old)
			l.barrier()
			between(l)
			l.keep(newer)
			l.barrier()
			finds(t, l.local, "k", newer)
			l.next()
			if h, ok := l.tier.Get(old.hash); !ok || h != old {
				t.Fatal("the schedule was not forced: ristretto does not have the older copy")
			}
			finds(t, l.local, "k", newer)
			l.next()
			l.recent.drop(newer.hash)
			finds(t, l.local, "k", newer)
		})
	}
}

// The older copy becomes visible between the delete that a keep begins with and its set, and the
// two deletes are still to come.
func TestAKeepIsNotLostToItsOwnDelete(t *testing.T) {
	l := haltingTierOf(t, roomyBudget)
	l.barrier()
	<-l.reached
	l.keep(heldAs("k", 1))
	l.barrier()
	l.drop(keyOf("k"))
	l.betweenDeleteAndSet = func() { l.next() }
	newer := heldAs("k", 2)
	l.keep(newer)
	finds(t, l.local, "k", newer)
	l.barrier()
	l.next()
	l.recent.drop(newer.hash) // a second later
	finds(t, l.local, "k", newer)
}

func TestB99_ValuesThatGrowStayWithinTheBudget(t *testing.T) {
	l := tierOf[int](t, 1<<20)
	for _, size := range []int{100, 100_000} {
		for i := range 500 {
			h := heldAs(fmt.Sprint(i), i)
			h.size = size
			l.keep(h)
		}
		l.tier.Wait()
	}
	var sum int64
	l.tier.IterValues(func(h *held[int]) bool {
		sum += h.cost()
		return false
	})
	if sum > 1<<20 {
		t.Errorf("%d bytes are held", sum)
	}
}

func TestADropTakesNothingOfOtherKeysAway(t *testing.T) {
	const keys = 2000
	l := tierOf[int](t, roomyBudget)
	all := make([]*held[int], keys)
	for i := range all {
		all[i] = heldAs(fmt.Sprint(i), i)
		l.keep(all[i])
	}
	for i := range keys {
		l.drop(keyOf(fmt.Sprint("another", i)))
	}
	l.tier.Wait()
	for i, h := range all {
		l.recent.drop(h.hash)
		if got := l.lookup(h.hash, h.text, asking); got != h {
			t.Fatalf("key %d: found %v", i, got)
		}
	}
}

// What ristretto has taken is not remembered, but for the last.
func TestTheQueueIsForgottenAsRistrettoTakesIt(t *testing.T) {
	l := tierOf[int](t, smallBudget)
	for i := range 5000 {
		l.keep(heldAs(fmt.Sprint(i%300), i))
	}
	l.tier.Wait()
	l.keep(heldAs("last", 0))
	l.tier.Wait()
	equal(t, "in the queue", len(l.queued.order), 1)
	equal(t, "by key", len(l.queued.last), 1)
}

func TestB03_WhatRistrettoDoesNotTakeIsCounted(t *testing.T) {
	l := tierOf[int](t, smallBudget)
	large := heldAs("large", 1)
	large.size = smallBudget
	l.keep(large)
	l.tier.Wait()
	equal(t, "refused", l.refusals(), 1)

	full := haltingTierOf(t, roomyBudget)
	full.barrier()
	<-full.reached
	const queue = 32 * 1024 // of ristretto
	for i := range queue + 10 {
		full.keep(heldAs(fmt.Sprint(i), i))
	}
	equal(t, "refused by a full queue", full.refusals(), 10)
}

func TestALoadThatRistrettoRefusesIsServedAllTheSame(t *testing.T) {
	l := tierOf[int](t, smallBudget)
	l.recent.budget = 2 * smallBudget
	h := heldAs("k", 1)
	h.size = smallBudget + 1 // more than all that ristretto may hold
	l.keep(h)
	l.tier.Wait()
	if _, ok := l.tier.Get(h.hash); ok {
		t.Fatal("ristretto took it, so this test says nothing")
	}
	finds(t, l, "k", h)
}

func TestALoadThatRistrettoRefusesIsGoneAfterADrop(t *testing.T) {
	l := tierOf[int](t, smallBudget)
	l.recent.budget = 2 * smallBudget
	h := heldAs("k", 1)
	h.size = smallBudget + 1
	l.keep(h)
	finds(t, l, "k", h)
	l.drop(keyOf("k"))
	finds(t, l, "k", nil)
}

// popular fills l with copies that are asked for often, so that it refuses newcomers.
func popular(l *local[int]) {
	for i := range 400 {
		l.keep(heldAs(fmt.Sprint("popular", i), i))
		l.tier.Wait()
	}
	for range 40 {
		for i := range 400 {
			text := fmt.Sprint("popular", i)
			l.lookup(hashOf(text), text, asking)
		}
	}
}

func TestAFullTierServesTheNewcomersThatItRefuses(t *testing.T) {
	if raceEnabled {
		t.Skip("under the race detector sync.Pool forgets, and with it ristretto what is popular")
	}
	l := tierOf[int](t, smallBudget)
	refused := 0
	for range 20 { // ristretto learns of reads in batches, some of which it drops
		popular(l)
		newcomer := heldAs(fmt.Sprint("newcomer", rand.Int()), 1)
		l.keep(newcomer)
		l.tier.Wait()
		if _, ok := l.tier.Get(newcomer.hash); !ok {
			refused++
		}
		finds(t, l, newcomer.text, newcomer)
	}
	if refused == 0 {
		t.Error("ristretto refused nobody, so this test says nothing")
	}
}

func TestB110_EqualHashesNeverGiveAnotherKeysValue(t *testing.T) {
	const keys, hash = 1000, uint64(7)
	l := tierOf[int](t, roomyBudget)
	for range 20_000 {
		i := rand.IntN(keys)
		text := fmt.Sprint(i)
		switch rand.IntN(4) {
		case 0:
			h := &held[int]{text: text, hash: hash, value: i}
			l.keep(h)
			if got := l.lookup(hash, text, asking); got != h {
				t.Fatalf("%s was just kept, and is %v", text, got)
			}
		case 1:
			l.drop(rebuild.Key{Text: text, Hash: hash})
			if h := l.lookup(hash, text, asking); h != nil {
				t.Fatalf("%s was just dropped, and is %v", text, h)
			}
		default:
			if h := l.lookup(hash, text, link.Instant(rand.IntN(sampleEvery))); h != nil && h.value != i {
				t.Fatalf("%s has the value of %d", text, h.value)
			}
		}
	}
}

// One writer at a time changes a key, as package rebuild sees to; anybody reads.
func TestReadersNeverSeeWhatADropHasTakenAway(t *testing.T) {
	const keys, rounds = 8, 1500
	l := tierOf[int64](t, smallBudget)
	var floor [keys]atomic.Int64 // nothing below it may be seen any more
	var readers, writers sync.WaitGroup
	stop := make(chan struct{})
	texts := make([]string, keys)
	for k := range keys {
		texts[k] = fmt.Sprint("key", k)
	}
	for range 4 {
		readers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				k := n % keys
				least := floor[k].Load()
				if h := l.lookup(hashOf(texts[k]), texts[k], link.Instant(n)); h != nil && h.value < least {
					t.Errorf("%s: version %d after %d was dropped", texts[k], h.value, least-1)
					return
				}
			}
		})
	}
	for k := range keys {
		writers.Go(func() {
			for v := range int64(rounds) {
				l.keep(heldAs(texts[k], v))
				l.drop(keyOf(texts[k]))
				floor[k].Store(v + 1)
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

func TestB99_TheBudgetIsBytes(t *testing.T) {
	l := tierOf[int](t, smallBudget)
	for i := range 5000 {
		h := heldAs(fmt.Sprintf("%0100d", i), i)
		h.size = rand.IntN(2000)
		l.keep(h)
	}
	l.tier.Wait()
	var bytes int64
	l.tier.IterValues(func(h *held[int]) bool {
		bytes += h.cost()
		return false
	})
	if bytes > smallBudget || bytes < smallBudget/2 {
		t.Errorf("%d bytes are held, the budget is %d", bytes, smallBudget)
	}
}
