package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// settings is what the command line asks for.
type settings struct {
	nodes, callers, keys int
	ttl, stale, load     time.Duration
	dbConns              int
	runFor               time.Duration
	modes                []string
	think                time.Duration
	trace, redis         string
	kill, json           bool
}

// longest is the longest lifetime that an entry may have.
const longest = 365 * 24 * time.Hour

// parse reads the command line. What the flag package itself refuses it has already told on out, with the usage.
func parse(args []string, out io.Writer) (settings, error) {
	var s settings
	fs := flag.NewFlagSet("stampede", flag.ContinueOnError)
	fs.SetOutput(out)
	mode := s.define(fs)
	if err := fs.Parse(args); err != nil {
		return s, fmt.Errorf("%w: %w", errReported, err)
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if !given["stale"] {
		s.stale = s.ttl
	}
	return s, errors.Join(s.chooseModes(*mode), s.check(fs.Args()), s.checkTogether(given))
}

// errReported marks an error that the user has been shown already.
var errReported = errors.New("command line")

func (s *settings) define(fs *flag.FlagSet) (mode *string) {
	fs.IntVar(&s.nodes, "nodes", 8, "`number` of nodes, each with its own client, local tier and cache")
	fs.IntVar(&s.callers, "callers", 50, "`number` of callers on each node")
	fs.IntVar(&s.keys, "keys", 1, "`number` of keys; more than one are drawn from a Zipf distribution (s = 1.1)")
	fs.DurationVar(&s.ttl, "ttl", time.Second, "how long a value is fresh")
	fs.DurationVar(&s.stale, "stale", 0, "how long levee may serve a value after that; 0: not at all (default: as long as -ttl)")
	fs.DurationVar(&s.load, "load", 50*time.Millisecond, "how long one database query takes")
	fs.IntVar(&s.dbConns, "db-conns", 0, "`number` of queries the database runs at once, others queue; 0: no limit")
	fs.DurationVar(&s.runFor, "for", 4*time.Second, "how long each mode is counted, after its warm-up (-kill ends by itself)")
	mode = fs.String("mode", "all", "comma `list` of modes: "+strings.Join(modeNames(), ", ")+", or all")
	fs.DurationVar(&s.think, "think", 2*time.Millisecond, "pause of a caller between two reads, give or take half of it")
	fs.StringVar(&s.trace, "trace", "", "recorded key sequence, a gzip `file` of 4-byte words; all callers walk it together")
	fs.StringVar(&s.redis, "redis", "", "`address` of a Redis, host:port or URL (default: a private server, else the embedded one)")
	fs.BoolVar(&s.kill, "kill", false, "run the nodes as processes and kill -9 the lease holder in the middle of a load")
	fs.BoolVar(&s.json, "json", false, "print one JSON object per mode and nothing else on standard output")
	return mode
}

// check tests every flag by itself and names each that is wrong.
func (s *settings) check(rest []string) error {
	var faults []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	must(len(rest) == 0, "unexpected argument %q", strings.Join(rest, " "))
	must(s.nodes >= 1, "-nodes %d: at least 1", s.nodes)
	must(s.callers >= 1, "-callers %d: at least 1", s.callers)
	must(s.keys >= 1, "-keys %d: at least 1", s.keys)
	must(s.ttl >= time.Millisecond && s.ttl <= longest, "-ttl %v: from 1ms to a year", s.ttl)
	must(s.stale >= 0 && s.stale <= longest, "-stale %v: from 0 to a year", s.stale)
	must(s.load >= 0, "-load %v: not negative", s.load)
	must(s.dbConns >= 0, "-db-conns %d: not negative", s.dbConns)
	must(s.runFor > 0, "-for %v: more than 0", s.runFor)
	must(s.think >= 0, "-think %v: not negative", s.think)
	if s.redis != "" {
		_, err := clientOptions(s.redis)
		must(err == nil, "-redis %w", err)
	}
	return errors.Join(faults...)
}

// checkTogether refuses flags that contradict each other.
func (s *settings) checkTogether(given map[string]bool) error {
	var faults []error
	if s.trace != "" && given["keys"] {
		faults = append(faults, errors.New("-trace and -keys: the trace brings its own keys, give one of them"))
	}
	if !s.kill {
		return errors.Join(faults...)
	}
	if s.nodes < 2 {
		faults = append(faults, fmt.Errorf("-nodes %d with -kill: at least 2, one is killed", s.nodes))
	}
	if s.load < 10*time.Millisecond {
		faults = append(faults, fmt.Errorf("-load %v with -kill: at least 10ms, it is killed in the middle", s.load))
	}
	if s.keys > 1 || s.trace != "" {
		faults = append(faults, errors.New("-kill: works on one hot key, without -keys and -trace"))
	}
	if !slices.Contains(s.modes, "levee") {
		faults = append(faults, errors.New("-kill: only mode levee has a lease holder, leave out -mode"))
	}
	return errors.Join(faults...)
}

func (s *settings) chooseModes(list string) error {
	if list == "all" {
		s.modes = modeNames()
		return nil
	}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if !slices.Contains(modeNames(), name) {
			return fmt.Errorf("-mode %q: not one of %s, all", name, strings.Join(modeNames(), ", "))
		}
		if !slices.Contains(s.modes, name) {
			s.modes = append(s.modes, name)
		}
	}
	return nil
}
