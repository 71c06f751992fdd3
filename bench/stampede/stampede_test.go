package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(nodeProcess) != "" {
		os.Exit(nodeMain(os.Stdin, os.Stdout))
	}
	goleak.VerifyTestMain(m)
}

// play runs the program and returns the lines that it printed.
func play(t *testing.T, args string) (results []result) {
	t.Helper()
	var out, log strings.Builder
	if code := start(t.Context(), append(strings.Fields(args), "-json"), &out, &log); code != 0 {
		t.Fatalf("exit %d\n%s", code, log.String())
	}
	lines := json.NewDecoder(strings.NewReader(out.String()))
	lines.DisallowUnknownFields()
	for {
		var r result
		switch err := lines.Decode(&r); {
		case errors.Is(err, io.EOF):
			return results
		case err != nil:
			t.Fatalf("%v in\n%s", err, out.String())
		}
		results = append(results, r)
	}
}

func TestTheModesAreComparedOnOneServer(t *testing.T) {
	results := play(t, "-nodes 2 -callers 5 -ttl 300ms -load 20ms -for 700ms")
	if len(results) != len(modes) {
		t.Fatalf("%d lines for %d modes", len(results), len(modes))
	}
	for i, r := range results {
		if r.Mode != modes[i].name || r.Errors != 0 || r.Reads == 0 || r.Loads == 0 || cached(r) && r.Expiries == 0 {
			t.Errorf("%+v", r)
		}
		if r.Server == "" || r.Server != results[0].Server || r.P50 <= 0 || r.P50 > r.P99 || r.P999 > r.Max {
			t.Errorf("%+v", r)
		}
	}
	direct, none := results[0], results[1]
	if direct.Loads < direct.Reads {
		t.Errorf("direct asked the database %d times for %d reads", direct.Loads, direct.Reads)
	}
	if none.RedisCommandsPerRead < 1 {
		t.Errorf("none asked Redis %v times per read", none.RedisCommandsPerRead)
	}
}

// cached tells whether something can expire.
func cached(r result) bool { return r.Mode != "direct" }

func TestManyKeysAreReadInEveryMode(t *testing.T) {
	for _, r := range play(t, "-nodes 2 -callers 5 -keys 20 -ttl 300ms -stale 0 -load 5ms -db-conns 3 -for 500ms") {
		if r.Errors != 0 || cached(r) && r.Expiries < 5 || r.Stale != 0 {
			t.Errorf("%+v", r)
		}
	}
}

func TestAnInterruptedRunStopsItsServerAndFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var out, log strings.Builder
	began := time.Now()
	if code := start(ctx, strings.Fields("-nodes 2 -callers 2 -for 1h"), &out, &log); code != 1 {
		t.Errorf("exit %d", code)
	}
	if took := time.Since(began); took > 30*time.Second || !strings.Contains(log.String(), "interrupted") {
		t.Errorf("after %v: %s", took, log.String())
	}
}

func TestTheOthersGoOnAfterTheHolderWasKilled(t *testing.T) {
	results := play(t, "-kill -nodes 3 -callers 3 -ttl 300ms -load 200ms")
	if len(results) != 2 {
		t.Fatalf("%d scenarios", len(results))
	}
	for _, r := range results {
		// One load was killed, and another did its work.
		if r.Errors != 0 || r.Reads == 0 || r.Loads < 2 {
			t.Errorf("%+v", r)
		}
	}
	if cold, stale := results[0], results[1]; cold.Stale != 0 || stale.Stale == 0 {
		t.Errorf("stale reads: %d without a window, %d with one", cold.Stale, stale.Stale)
	}
}

func TestANodeProcessRefusesAnOrderBeforeItIsOpen(t *testing.T) {
	var out strings.Builder
	if code := nodeMain(strings.NewReader(`{"Do":"count"}`), &out); code != 1 || !strings.Contains(out.String(), "before the node is open") {
		t.Errorf("exit %d, said %s", code, out.String())
	}
}
