package redistest

import (
	"testing"
)

func TestAReplicaHasWhatItsMasterHasAndCanTakeOver(t *testing.T) {
	master := RealOnly(t)
	c := master.Client(t)
	must(t, c.Set(t.Context(), "before", "1", 0).Err())
	replica := Replica(t, master.Addr())
	r := replica.Client(t)
	equal(t, "before", r.Get(t.Context(), "before").Val(), "1")
	must(t, c.Set(t.Context(), "after", "2", 0).Err())
	Eventually(t, longEnough, func() bool { return r.Get(t.Context(), "after").Val() == "2" }, "it follows")
	must(t, master.Kill())
	must(t, replica.Promote(t.Context()))
	must(t, r.Set(t.Context(), "own", "3", 0).Err())
}
