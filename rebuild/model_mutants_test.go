package rebuild

import (
	"os"
	"strings"
	"testing"
	"time"
)

// What the model cannot express has deterministic tests. R18, the clock that steps back: here time has no length
// (TestR18_...). R19, that a load which lost its lease goes on for those who wait: no promise is broken if it does not,
// callers only go without (TestR19_...). R23 is found as a lease that nobody ends; that waiters do not load one after the
// other is TestR23_.... The lease of R21 that a late acquire re-creates makes no difference to an identity of version and writer;
// its windows do.

// mutants are the protocol with one rule taken out, and where that shows. race is the schedule
// that led to the rule, if it was one with a number.
var mutants = []struct {
	name, race string
	without    guards
	rules      rules
	scope      scope
}{
	{"the lease is its token alone", "R1", leaseStart, 0, faulty(deleting)},
	{"a set is one step", "R2", 0, twoSteps, scope{nodes: 2, kinds: []u8{setting}, most: budgets{changes: 2, faults: 1}}},
	{"a delete leaves the flight to newcomers", "R3", 0, forgetFlights, calm(deleting)},
	{"a delete leaves the load to newcomers", "R3", 0, forgetLoads, calm(deleting)},
	{"a delete forgets before its script", "R4", 0, forgetAfter, calm(deleting)},
	{"a delete forgets only if it succeeds", "R5", 0, forgetAlways, faulty(deleting)},
	{"a delete makes nothing void", "R4", 0, voiding, calm(deleting)},
	{"a message only drops the copy", "R6", 0, messageVoids, hearing(deleting)},
	{"a read keeps without a ticket", "R6", 0, tickets, calm(deleting)},
	{"a set keeps without a ticket", "R6", 0, setTicket, scope{nodes: 2, messages: true, kinds: []u8{setting, deleting}, most: budgets{changes: 2}}},
	{"an early refresh leases whatever is fresh", "R7", earlyBar, 0, scope{nodes: 2, early: true, most: budgets{gets: 4}}},
	{"a repeated commit is executed again", "R8", repeatedCommit, 0, faulty(expiring)},
	{"a repeated fail is counted again", "R9", failLease, 0, scope{nodes: 2, most: budgets{gets: 1, failures: 1, faults: 1}}},
	{"an acquire that comes too late leases", "R10", notAfter, 0, faulty()},
	{"a seize that comes too late leases", "R10", seizeNotAfter, 0, faulty(setting)},
	{"a token in doubt is given back once", "R10", 0, secondRelease, faulty()},
	{"an acquire of unknown fate is not given back", "R10", 0, unknownFate, faulty()},
	{"belief counts from the end of a load", "R11", 0, beliefFromStart, faulty(deleting)},
	{"belief counts from the answer to a read", "R11", 0, readFromSending, calm(deleting)},
	{"belief counts from the answer to a commit", "R11", 0, commitFromSending, calm(deleting)},
	{"who waits leaves no flag", "R12", waitersFlag, 0, calm()},
	{"a refusal wakes nobody", "R12", refusalWakes, 0, scope{nodes: 2, most: budgets{foreign: 1, gets: 2}}},
	{"who waits does not poll", "R12", 0, polling, scope{nodes: 2, waits: true, most: budgets{foreign: 1, gets: 2, crashes: 1}}},
	{"a refresh is answered by an older load", "R13", 0, refreshBar, scope{nodes: 2, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, refreshes: 1}}},
	{"a load that runs is not joined", "R14", 0, joining, scope{nodes: 2, warm: true, most: budgets{gets: 2, windows: 1, faults: 2}}},
	{"a lease that is held is granted", "R15", heldLease, 0, calm()},
	{"the message goes out before the script", "R16", 0, messageAfter, hearing(deleting)},
	{"a set with an older row version goes on", "R17", seizeRow | commitRow, 0, rowed()},
	{"a load drops the row version", "R17", rowCarried, 0, rowed()},
	{"a broken chain raises no epoch", "R20", 0, epoch, hearing(deleting)},
	{"the epoch is raised before the last id is taken", "R20", 0, idFirst, hearing(deleting)},
	{"copies from before the epoch are believed", "R20", 0, oldCopies, hearing(deleting)},
	{"reads from before the epoch are believed", "R20", 0, oldReads, warm(hearing(deleting))},
	{"loads from before the epoch are believed", "R20", 0, oldLoads, scope{nodes: 2, messages: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, cuts: 1, faults: 1}}},
	{"any header verifies a copy", "R21", 0, verifyIdentity, warm(calm(deleting))},
	{"a verified copy has its own windows", "R21", 0, verifyWindows, calm(expiring)},
	{"what a load brings leaves reads alone", "R22", 0, loadsVoid, scope{nodes: 2, early: true, most: budgets{gets: 4}}},
	{"what the server refuses to store is not passed", "R23", 0, passing1, scope{nodes: 2, most: budgets{gets: 1, refuse: 1}}},
	{"a plain delete drops the hold-down", "R24", holdDownStays, 0, lagging()},
	{"windows outlast the hold-down", "R24", holdDownEnds, 0, lagging()},
	{"the hold-down is asked at the commit only", "R24", holdDownStart, 0, lagging()},
	{"a set drops the flag of those who wait", "R25", seizeFlag, 0, calm(setting)},
	{"a commit needs no lease", "", commitLease, 0, calm(deleting)},
	{"a delete leaves the lease", "", deleteLease, 0, calm(deleting)},
	{"a renewal re-creates the lease", "", renewGone, 0, calm(deleting)},
	{"an acquire breaks the back-off", "", acquireBackoff, 0, scope{nodes: 2, most: budgets{gets: 2, failures: 1}}},
	{"a node forgets its failures", "", 0, memory, scope{nodes: 2, most: budgets{gets: 2, failures: 1, faults: 2}}},
	{"a lost lease leaves its load to newcomers", "", 0, lostCloses, calm(deleting)},
	{"a set whose seize was sent twice is committed", "", 0, twiceDeletes,
		scope{nodes: 2, kinds: []u8{setting, deleting}, most: budgets{changes: 2, faults: 1}}},
	{"a load without a lease is joined for ever", "", 0, besideCloses, faulty(deleting)},
}

func calm(kinds ...u8) scope {
	return scope{nodes: 2, kinds: kinds, most: budgets{changes: 1, gets: 2}}
}

func faulty(kinds ...u8) scope {
	return scope{nodes: 2, kinds: kinds, most: budgets{changes: 1, gets: 1, faults: 1}}
}

func hearing(kinds ...u8) scope {
	return scope{nodes: 2, messages: true, kinds: kinds, most: budgets{changes: 1, gets: 1, cuts: 1}}
}

func warm(c scope) scope {
	c.warm = true
	return c
}

func rowed() scope {
	return scope{nodes: 2, rows: true, kinds: []u8{setting}, most: budgets{changes: 2, gets: 1, windows: 1}}
}

func lagging() scope {
	return scope{nodes: 2, holdDown: true, kinds: []u8{deleting}, most: budgets{changes: 2, gets: 1}}
}

// tooMany states without a broken promise: the mutant is as good as not found.
const tooMany = 1_000_000

func TestTheModelFindsEveryMutant(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			c, began := m.scope, time.Now()
			c.without, c.rules = m.without, m.rules
			k := newJourney(&c)
			most := tooMany
			if brief() {
				most = aFew
			}
			k.run(workers, most)
			switch {
			case k.bad == nil && brief() && k.states >= most:
				t.Logf("not found among the first %d states: the whole walk is for the run without -race and -short", k.states)
				return
			case k.bad == nil:
				t.Fatalf("nothing is broken in %d states", k.states)
			}
			t.Logf("%s %d states, %v\n%s", m.race, k.states, time.Since(began).Round(time.Millisecond), strings.Join(k.trace(), "\n"))
		})
	}
}

// TestTheModelFindsNothingWhereNothingIsTakenOut walks for every mutant what is found without it: so it is the
// mutant that was found.
func TestTheModelFindsNothingWhereNothingIsTakenOut(t *testing.T) {
	most := aFew
	if os.Getenv("LEVEE_SOAK") == "1" {
		most = tooMany
	}
	for _, m := range mutants {
		k := newJourney(&m.scope)
		if k.run(workers, most); k.bad != nil {
			t.Errorf("the scope of %q:\n%s", m.name, strings.Join(k.trace(), "\n"))
		}
	}
}
