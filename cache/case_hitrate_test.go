package cache_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/levee-cache/levee/cache"
)

// The case's rates in a bubble, for 2 of its 60 s, an eighth of the deletes, half the keys, and a TTL of 1 s instead
// of 10; one node deletes, the other hears of it.
func TestB65_DeletesOfOtherKeysCostNoHits(t *testing.T) {
	o := settings()
	o.TTL, o.LocalTTL = time.Second, time.Second
	inBubble(t, 2, o, func(t *testing.T, f *fleet) {
		hot := soak(50, 100)
		f.query = takes(0)
		f.fans(t, "hot", hot)
		f.query = takes(50 * time.Millisecond)
		long := time.Duration(soak(2, 20)) * time.Second
		warm := f.sum(inMemory)
		var running sync.WaitGroup
		began := time.Now()
		running.Go(func() {
			for i := 0; time.Since(began) < long; i++ {
				must(t, f.nodes[0].Delete(t.Context(), fmt.Sprint("cold", i)))
				time.Sleep(time.Duration(soak(8, 1)) * time.Millisecond)
			}
		})
		reads := make([]int, len(f.nodes))
		for node, n := range f.nodes {
			running.Go(func() {
				for ; time.Since(began) < long; time.Sleep(time.Duration(200/hot) * time.Millisecond) { // each key five times a second
					key := fmt.Sprint("hot", reads[node]%hot)
					reads[node]++
					running.Go(func() { gets(t, n, key, value(key, 1)) })
				}
			})
		}
		running.Wait()
		hits := f.sum(inMemory) - warm
		if all := int64(reads[0] + reads[1]); hits*100 < all*95 {
			t.Errorf("%d hits of %d reads, want 95 %%", hits, all)
		}
		periods := int(long/o.TTL) + 1
		if loads := f.queries(); loads > hot*periods {
			t.Errorf("%d loads of %d keys in %d lifetimes", loads, hot, periods)
		}
	})
}

// inMemory counts the answers without a question to Redis.
func inMemory(s cache.Stats) int64 { return s.Hits + s.Stale }
