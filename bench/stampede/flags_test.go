package main

import (
	"errors"
	"flag"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestTheBareCommandComparesAllModes(t *testing.T) {
	s, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(s.modes, []string{"direct", "none", "flight", "levee"}) || s.nodes < 2 || s.stale != s.ttl || s.think != 2*time.Millisecond {
		t.Errorf("%+v", s)
	}
}

func TestAStaleWindowOfZeroIsNotTheDefault(t *testing.T) {
	s, err := parse([]string{"-ttl", "3s", "-stale", "0"}, io.Discard)
	if err != nil || s.stale != 0 {
		t.Errorf("stale %v, %v", s.stale, err)
	}
}

func TestModesKeepTheirOrderAndCountOnce(t *testing.T) {
	s, err := parse([]string{"-mode", "levee, none,levee"}, io.Discard)
	if err != nil || !reflect.DeepEqual(s.modes, []string{"levee", "none"}) {
		t.Errorf("%v, %v", s.modes, err)
	}
}

func TestAWrongFlagIsNamed(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-nodes 0", "-nodes 0"},
		{"-callers -3", "-callers -3"},
		{"-keys 0", "-keys 0"},
		{"-ttl 0", "-ttl 0s"},
		{"-ttl 100000h", "-ttl 100000h"},
		{"-stale -1s", "-stale -1s"},
		{"-load -1s", "-load -1s"},
		{"-db-conns -1", "-db-conns -1"},
		{"-for 0", "-for 0s"},
		{"-think -1ms", "-think -1ms"},
		{"-mode nonsense", `-mode "nonsense"`},
		{"-redis nowhere", `-redis "nowhere"`},
		{"-redis redis://:x:y", "-redis "},
		{"-keys 2 -trace file", "-trace and -keys"},
		{"-kill -nodes 1", "-nodes 1 with -kill"},
		{"-kill -keys 2", "-kill: works on one hot key"},
		{"-kill -trace file", "-kill: works on one hot key"},
		{"-kill -mode none", "-kill: only mode levee"},
		{"-kill -load 1ms", "-load 1ms with -kill"},
		{"surplus", `unexpected argument "surplus"`},
	} {
		_, err := parse(strings.Fields(c.args), io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want it to say %s", c.args, err, c.want)
		}
	}
}

func TestAllWrongFlagsAreToldAtOnce(t *testing.T) {
	_, err := parse([]string{"-nodes", "0", "-for", "0", "-mode", "x"}, io.Discard)
	for _, name := range []string{"-nodes", "-for", "-mode"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: does not name %s", err, name)
		}
	}
}

func TestWhatTheFlagPackageRefusesIsNotToldTwice(t *testing.T) {
	var out strings.Builder
	_, err := parse([]string{"-ttl", "soon"}, &out)
	if !errors.Is(err, errReported) || !strings.Contains(out.String(), "-ttl") {
		t.Errorf("%v, told %q", err, out.String())
	}
	if _, err := parse([]string{"-h"}, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}

func TestAWrongCommandLineExitsWithTwo(t *testing.T) {
	for args, want := range map[string]int{"-nodes 0": 2, "-nodes x": 2, "-h": 0, "-trace no-such-file": 1} {
		var out, log strings.Builder
		if code := start(t.Context(), strings.Fields(args), &out, &log); code != want {
			t.Errorf("%s: exit %d, want %d", args, code, want)
		}
		if out.Len() > 0 || log.Len() == 0 {
			t.Errorf("%s: on stdout %q, on stderr %q", args, out.String(), log.String())
		}
	}
}
