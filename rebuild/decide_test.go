package rebuild

import (
	"fmt"
	"testing"
)

// The table of design and documentation, one row a state, in the order of the columns: nobody
// holds the lease, somebody does, the last load failed a short while ago, and both of the latter.
var decisions = map[State]struct{ free, held, backoff, both Verdict }{
	Fresh: {serve, serve, serve, serve},
	Stale: {serveAndRefresh, serve, serve, serve},
	IfError: {
		free: Verdict{Deed: Load, Grace: true}, held: Verdict{Deed: Await, Grace: true},
		backoff: serve, both: Verdict{Deed: Await, Grace: true},
	},
	NotFound: {serve, serve, serve, serve},
	Gone:     {Verdict{Deed: Load}, Verdict{Deed: Await}, Verdict{Deed: Refuse}, Verdict{Deed: Await}},
	Pass:     {beside, beside, beside, beside},
	Foreign:  {beside, beside, beside, beside},
}

var (
	serve           = Verdict{Deed: Serve}
	serveAndRefresh = Verdict{Deed: Serve, Refresh: true}
	beside          = Verdict{Deed: Beside}
)

func TestTheDecisionIsTheTableOfTheDesign(t *testing.T) {
	for state := Gone; state <= Foreign; state++ {
		for _, taste := range []taste{anything, patiently, onlyFresh, atOnce} {
			row := decisions[state]
			switch {
			case taste == onlyFresh && (state == Stale || state == IfError):
				row = decisions[Gone] // nothing stale will do
			case taste == atOnce && (state == Stale || state == IfError):
				row = decisions[Fresh] // served, and nothing begun
			case taste == patiently && (state == Stale || state == IfError):
				row = decisions[IfError]
				row.free.Patient, row.held.Patient, row.both.Patient = true, true, true
			}
			for view, want := range map[View]Verdict{
				{State: state}:                            row.free,
				{State: state, Held: true}:                row.held,
				{State: state, Backoff: true}:             row.backoff,
				{State: state, Held: true, Backoff: true}: row.both,
			} {
				equal(t, fmt.Sprintf("%+v, taste %v", view, taste), Decide(view, taste), want)
			}
		}
	}
	equal(t, "states in the table", len(decisions), int(Foreign)+1)
}

// at is the instant, in milliseconds, at which the entries of the next tests are looked at.
const at Millis = 1_790_000_000_000

func TestAnEntryIsJudgedByItsWindows(t *testing.T) {
	windows := func(kind Kind, fresh, stale, ifError Millis) Header {
		return Header{Kind: kind, Fresh: at + fresh, Stale: at + stale, IfError: at + ifError}
	}
	for _, tc := range []struct {
		situation string
		h         Header
		want      State
	}{
		{"value, all windows open", windows(KindValue, 1, 2, 3), Fresh},
		{"value at the end of its freshness", windows(KindValue, 0, 2, 3), Stale},
		{"value, stale window open", windows(KindValue, -1, 1, 3), Stale},
		{"value at the end of its stale window", windows(KindValue, -1, 0, 3), IfError},
		{"value, last window open", windows(KindValue, -2, -1, 1), IfError},
		{"value at the end of its last window", windows(KindValue, -2, -1, 0), Gone},
		{"value without windows", Header{Kind: KindValue}, Gone},
		{"value without a stale window", windows(KindValue, -1, -1, 5), IfError},
		{"not found, believed", windows(KindNotFound, 1, 1, 1), NotFound},
		{"not found, no longer", windows(KindNotFound, 0, 0, 0), Gone},
		{"not found is never stale", windows(KindNotFound, -1, 5, 5), Gone},
		{"not storable", windows(KindPass, 1, 1, 1), Pass},
		{"not storable, some time ago", windows(KindPass, 0, 0, 0), Gone},
		{"failed", windows(KindFailed, 5, 5, 5), Gone},
		{"only a lease", windows(KindLease, 5, 5, 5), Gone},
		{"nothing", Header{}, Gone},
	} {
		equal(t, tc.situation, tc.h.view(at.micros()).State, tc.want)
	}
}

func TestAMillisecondEndsWithItsLastMicrosecond(t *testing.T) {
	h := Header{Kind: KindValue, Fresh: at + 1, Stale: at + 1, IfError: at + 1}
	equal(t, "before", h.view(at.micros()+999).State, Fresh)
	equal(t, "after", h.view(at.micros()+1000).State, Gone)
}

func TestAVersionAheadOfTheClockIsStaleAtMost(t *testing.T) {
	now := at.micros()
	open := func(kind Kind, ahead Micros) Header {
		return Header{Kind: kind, Identity: Identity{Version: now + ahead}, Fresh: at + 9000, Stale: at + 9000, IfError: at + 9000}
	}
	equal(t, "a second ahead", open(KindValue, aheadOf).view(now).State, Fresh)
	equal(t, "more than that", open(KindValue, aheadOf+1).view(now).State, Stale)
	equal(t, "not found, a second ahead", open(KindNotFound, aheadOf).view(now).State, NotFound)
	equal(t, "not found, more than that", open(KindNotFound, aheadOf+1).view(now).State, Gone)
}

func TestALeaseIsHeldUntilItsEndUnlessItsStartLiesAhead(t *testing.T) {
	now := at.micros()
	for _, tc := range []struct {
		situation string
		h         Header
		want      bool
	}{
		{"none", Header{Kind: KindLease, LeaseUntil: at + 1}, false},
		{"running", Header{Kind: KindLease, Token: "t", Start: now - 1, LeaseUntil: at + 1}, true},
		{"at its end", Header{Kind: KindLease, Token: "t", Start: now - 1, LeaseUntil: at}, false},
		{"with a value", Header{Kind: KindValue, Token: "t", LeaseUntil: at + 1}, true},
		{"a second ahead", Header{Kind: KindLease, Token: "t", Start: now + aheadOf, LeaseUntil: at + 9000}, true},
		{"more than that", Header{Kind: KindLease, Token: "t", Start: now + aheadOf + 1, LeaseUntil: at + 9000}, false},
	} {
		equal(t, tc.situation, tc.h.view(now).Held, tc.want)
	}
}

func TestABackoffLastsUntilItsEnd(t *testing.T) {
	for _, kind := range []Kind{KindFailed, KindValue, KindNotFound} {
		h := Header{Kind: kind, RetryAfter: at + 1}
		equal(t, "before", h.view(at.micros()).Backoff, true)
		equal(t, "at its end", h.view((at + 1).micros()).Backoff, false)
	}
}
