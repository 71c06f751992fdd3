package rebuild

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// situation is a scope with a name.
type situation struct {
	name string
	scope
}

var scopes = []situation{
	{"delete", scope{nodes: 2, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 2}}},
	{"delete, fault", scope{nodes: 2, waits: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, faults: 1}}},
	{"delete, faults, warm", scope{nodes: 2, warm: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, faults: 2}}},
	{"deletes", scope{nodes: 2, kinds: []u8{deleting}, most: budgets{changes: 2, gets: 1}}},
	{"expire, warm", scope{nodes: 2, warm: true, kinds: []u8{expiring}, most: budgets{changes: 1, gets: 2}}},
	{"expire, fault", scope{nodes: 2, kinds: []u8{expiring}, most: budgets{changes: 1, gets: 1, faults: 1, windows: 1}}},
	{"set", scope{nodes: 2, kinds: []u8{setting}, most: budgets{changes: 1, gets: 2}}},
	{"sets, faults", scope{nodes: 2, kinds: []u8{setting}, most: budgets{changes: 2, faults: 2}}},
	{"set and delete, fault", scope{nodes: 2, kinds: []u8{setting, deleting}, most: budgets{changes: 2, faults: 1}}},
	{"all, warm", scope{nodes: 2, warm: true, kinds: []u8{deleting, expiring, setting}, most: budgets{changes: 2, gets: 1}}},
	{"messages", scope{nodes: 2, messages: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, cuts: 1}}},
	{"messages, fault, warm", scope{nodes: 2, messages: true, warm: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, cuts: 1, faults: 1}}},
	{"messages, expire", scope{nodes: 2, messages: true, kinds: []u8{expiring}, most: budgets{changes: 1, gets: 1, cuts: 1}}},
	{"messages, set", scope{nodes: 2, messages: true, kinds: []u8{setting}, most: budgets{changes: 1, gets: 1, cuts: 1}}},
	{"messages, changes", scope{nodes: 2, messages: true, warm: true, kinds: []u8{setting, deleting}, most: budgets{changes: 2, gets: 1}}},
	{"failures", scope{nodes: 2, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, failures: 2}}},
	{"failures, fault", scope{nodes: 2, waits: true, most: budgets{gets: 2, failures: 1, faults: 1}}},
	{"early", scope{nodes: 2, early: true, warm: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 2}}},
	{"rows", scope{nodes: 2, rows: true, kinds: []u8{setting}, most: budgets{changes: 2, gets: 1}}},
	{"hold-down", scope{nodes: 2, holdDown: true, kinds: []u8{deleting}, most: budgets{changes: 2, gets: 1}}},
	{"pass, fault", scope{nodes: 2, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, unstored: 1, faults: 1}}},
	{"full", scope{nodes: 2, waits: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, refuse: 1, faults: 1}}},
	{"foreign", scope{nodes: 2, waits: true, most: budgets{foreign: 1, gets: 2, lapses: 1}}},
	{"crash", scope{nodes: 2, waits: true, most: budgets{gets: 2, crashes: 1, lapses: 1}}},
	{"crash, delete", scope{nodes: 2, waits: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, crashes: 1, lapses: 1}}},
	{"refresh, warm", scope{nodes: 2, warm: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, refreshes: 1}}},
	{"delete of 3", scope{nodes: 3, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 2}}},
	{"messages of 3", scope{nodes: 3, messages: true, warm: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, cuts: 1}}},
	{"waits of 3", scope{nodes: 3, waits: true, most: budgets{gets: 3}}},
	{"set of 3", scope{nodes: 3, kinds: []u8{setting}, warm: true, most: budgets{changes: 1, gets: 2}}},
	{"messages, crash", scope{nodes: 2, messages: true, warm: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, crashes: 1, cuts: 1}}},
	{"messages, pass", scope{nodes: 2, messages: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, unstored: 1, cuts: 1}}},
	{"set, crash", scope{nodes: 2, warm: true, waits: true, kinds: []u8{setting}, most: budgets{changes: 1, gets: 1, crashes: 1, faults: 1}}},
	{"early, faults", scope{nodes: 2, early: true, warm: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, faults: 2}}},
}

// larger scopes, for LEVEE_SOAK=1.
var larger = []situation{
	{"messages, two gets", scope{nodes: 2, messages: true, warm: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 2, cuts: 1}}},
	{"messages, fault", scope{nodes: 2, messages: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, cuts: 1, faults: 1}}},
	{"messages, refresh", scope{nodes: 2, messages: true, warm: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 1, refreshes: 1}}},
	{"delete, fault, two gets", scope{nodes: 2, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 2, faults: 1}}},
	{"failures, lapse", scope{nodes: 2, warm: true, kinds: []u8{deleting}, most: budgets{changes: 1, gets: 2, failures: 1, lapses: 1}}},
	{"expire, faults", scope{nodes: 2, warm: true, kinds: []u8{expiring}, most: budgets{changes: 1, gets: 1, faults: 2, windows: 1}}},
	{"set, faults", scope{nodes: 2, warm: true, kinds: []u8{setting}, most: budgets{changes: 1, gets: 1, faults: 2}}},
}

// brief runs walk only the beginning: under the race detector, which makes them ten times slower, and with -short.
func brief() bool { return raceEnabled || testing.Short() }

const (
	workers = 2
	aFew    = 1_000 // states
)

// TestModel walks every interleaving of each scope: no promise is broken in any.
func TestModel(t *testing.T) {
	all, depth, most := 0, 0, 0
	if brief() {
		most = aFew
	}
	todo := scopes
	if os.Getenv("LEVEE_SOAK") == "1" {
		todo = slices.Concat(scopes, larger)
	}
	for _, c := range todo {
		t.Run(c.name, func(t *testing.T) {
			k, began := newJourney(&c.scope), time.Now()
			k.run(workers, most)
			t.Logf("%d nodes: %d distinct states, depth %d, %v", c.nodes, k.states, k.depth-1, time.Since(began).Round(time.Millisecond))
			if k.bad != nil {
				t.Errorf("a promise is broken:\n%s", strings.Join(k.trace(), "\n"))
			}
			all, depth = all+k.states, max(depth, k.depth)
		})
	}
	t.Logf("%d distinct states altogether, the farthest %d steps deep", all, depth-1)
}
