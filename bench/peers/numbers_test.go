package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

func TestQuantilesAreValuesThatWereSeen(t *testing.T) {
	all := []time.Duration{5, 1, 4, 2, 3}
	for share, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := at(all, share); got != want {
			t.Errorf("at %v: %d, want %d", share, got, want)
		}
	}
	if at([]float64(nil), 0.5) != 0 || all[0] != 5 {
		t.Error("an empty list, or the caller's order, is not taken for what it is")
	}
}

func TestStatisticsAreAddedUpByCommandAndField(t *testing.T) {
	const text = "# Commandstats\r\n" +
		"cmdstat_evalsha:calls=2,usec=61,usec_per_call=30.50,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_set:calls=3,usec=9,usec_per_call=3.00,rejected_calls=0,failed_calls=0\r\n" +
		"cmdstat_setrange:calls=100,usec=100,usec_per_call=1.00,rejected_calls=0,failed_calls=0\r\n"
	if got := sumStats(text, "usec", []string{"evalsha", "set"}); got != 70 {
		t.Errorf("usec: %d", got)
	}
	if got := sumStats(text, "calls", []string{"set"}); got != 3 {
		t.Errorf("calls: %d", got)
	}
}

func TestASaleThatDidNotEndIsNotLostInTheMedian(t *testing.T) {
	took := []time.Duration{time.Second, giveUp, 2 * time.Second}
	if got := salesText(took); got != "2 s (1 of 3 not within 60 s)" {
		t.Error(got)
	}
	if got := salesText(took[:1]); got != "1 s" {
		t.Error(got)
	}
}

func TestARaceTellsHandoffsAndTurns(t *testing.T) {
	r := race{lockers: 3, took: time.Second, turns: []turn{
		{Who: 0, Got: 10, Freed: 20}, {Who: 1, Got: 25, Freed: 30}, {Who: 0, Got: 37, Freed: 40},
	}}
	if got := r.handoffs(); len(got) != 2 || got[0] != 5 || got[1] != 7 {
		t.Errorf("handoffs: %v", got)
	}
	if most, least := r.spread(); most != 2 || least != 0 {
		t.Errorf("turns %d:%d", most, least)
	}
	alone := race{lockers: 2, turns: make([]turn, 4)}
	even := race{lockers: 2, turns: []turn{{Who: 0}, {Who: 1}, {Who: 0}}}
	if fair([]race{alone}) || !fair([]race{even}) {
		t.Error("who starves is not seen, or who does not is")
	}
}

func TestWhatIsBrokenEndsTheProgramWithAFault(t *testing.T) {
	rows := []row{{id: "P1", figure: "commands", bar: "2", verdict: judge(true), values: map[string]string{levee.name: "2"}}}
	var out bytes.Buffer
	if code := present(&out, io.Discard, rows); code != 0 || !strings.Contains(out.String(), "| P1 | commands | 2 | 2 | – | – | – |  | met |") {
		t.Errorf("status %d, and\n%s", code, out.String())
	}
	rows[0].broken = gate(false, "%d", 3)
	if code := present(io.Discard, io.Discard, rows); code != 1 {
		t.Errorf("status %d", code)
	}
}

func TestEveryFailureTakesTheStageDown(t *testing.T) {
	down := false
	s := &stage{name: "P0", log: io.Discard}
	_, err := s.run(func(s *stage) []row {
		s.Cleanup(func() { down = true })
		s.atOnce(peers, func(peer) { s.Fatalf("no server") })
		return nil
	})
	if err == nil || !down || !strings.Contains(err.Error(), "P0: no server") {
		t.Errorf("%v, down %v", err, down)
	}
}
