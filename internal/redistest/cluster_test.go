package redistest

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestAClusterServesEveryKeyAndSurvivesAMaster(t *testing.T) {
	c := Cluster(t)
	r := c.Client(t, func(o *redis.ClusterOptions) {
		o.ReadTimeout, o.MaxRedirects, o.DialerRetries = 200*time.Millisecond, 1, 1
	})
	owned := map[int]string{}
	for i := range 30 {
		key := fmt.Sprint("key-", i)
		must(t, r.Set(t.Context(), key, i, time.Minute).Err())
		n, err := c.NodeFor(t.Context(), key)
		must(t, err)
		owned[n] = key
		direct := c.Node(n).Client(t)
		equal(t, key, direct.Get(t.Context(), key).Val(), fmt.Sprint(i))
	}
	equal(t, "nodes with keys", len(owned), 3)

	must(t, c.Node(1).Kill())
	if r.Get(t.Context(), owned[1]).Err() == nil {
		t.Fatal("a dead master answered")
	}
	for _, n := range []int{0, 2} {
		Eventually(t, longEnough, func() bool { return r.Get(t.Context(), owned[n]).Err() == nil }, "node ", n)
	}
}

func TestOwnershipOfSlotsHasNoGap(t *testing.T) {
	for i := range 3 {
		equal(t, "owner of first", owner(share(i)), i)
		equal(t, "owner of last", owner(share(i+1)-1), i)
	}
	equal(t, "end", share(3), slots)
}
