package bench

import (
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/lock"
)

// BenchmarkLockWithReplicas is an uncontended lock on a server with a replica: as it is, and when the replica has to have it. Beside them the
// WAIT alone, behind a write, which is what the second costs more.
func BenchmarkLockWithReplicas(b *testing.B) {
	primary := redistest.RealOnly(b)
	redistest.Replica(b, primary.Addr())
	client := primary.Client(b)
	for name, options := range map[string][]lock.Option{"none": nil, "one": {lock.WithReplicas(1, time.Second)}} {
		b.Run(name, func(b *testing.B) {
			locks, err := lock.New(client, options...)
			must(b, err)
			defer func() { must(b, locks.Close()) }()
			cycle(b, locks, "job")
			for b.Loop() {
				cycle(b, locks, "job")
			}
		})
	}
	b.Run("write and WAIT alone", func(b *testing.B) {
		conn := client.Conn()
		defer func() { must(b, conn.Close()) }()
		for b.Loop() {
			must(b, conn.Set(b.Context(), "x", 1, time.Minute).Err())
			must(b, conn.Do(b.Context(), "wait", 1, 1000).Err())
		}
	})
}
