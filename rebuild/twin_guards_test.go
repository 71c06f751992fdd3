package rebuild

import (
	"fmt"
	"testing"
)

// guards are rules of the scripts that the model can take out, one at a time, to see whether it
// notices. The twin that is held to the Lua has all of them.
type guards uint32

const (
	leaseStart     guards = 1 << iota // a lease is (token, start), not the token alone
	heldLease                         // nobody gets a lease that somebody holds
	notAfter                          // what comes too late leases nothing
	earlyBar                          // what somebody has just refreshed is not leased again
	acquireBackoff                    // a failed key is left alone
	waitersFlag                       // who waits is remembered
	refusalWakes                      // a refusal publishes the wake-up
	commitLease                       // a commit needs its lease
	commitRow                         // an older row version is not stored
	repeatedCommit                    // a commit that has been executed changes nothing
	rowCarried                        // a load that knows no row version leaves the entry's
	holdDownEnds                      // windows end with the hold-down
	holdDownStart                     // also of a load that began within it and commits after it
	holdDownStays                     // a plain delete leaves an earlier hold-down
	renewGone                         // a renewal re-creates nothing
	failLease                         // a fail needs its lease
	deleteLease                       // a delete takes the lease too
	seizeFlag                         // a set keeps the flag of those who wait
	seizeNotAfter                     // a set that comes too late only deletes
	seizeRow                          // a set with an older row version changes nothing
	lastGuard
)

func (g guards) has(rule guards) bool { return g&rule != 0 }

// TestATwinWithoutAGuardDiffersFromTheScripts: so the sequences reach every rule that the model
// takes out.
func TestATwinWithoutAGuardDiffersFromTheScripts(t *testing.T) {
	onReal(t, func(r *rig) {
		for g := guards(1); g < lastGuard; g <<= 1 {
			p := newPair(r, uint64(g), map[string]int{})
			p.without = g
			if p.walk(6000) == nil {
				r.t.Errorf("nothing differs without guard %v", fmt.Sprintf("%b", g))
			}
		}
	})
}
