// Command peers measures package lock beside redsync, redislock and rueidislock, each at the settings that its own
// documentation recommends, in one run, and prints a table of markdown.
//
//	go -C bench/peers run .         # all bars, ten minutes
//	go -C bench/peers run . -short  # that everything runs, and what can be counted
//	go -C bench/peers run . -only P5,P6
//
// The bars are those that the package was built to. It ends with 1 if a figure is beyond what any machine explains.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
)

func main() {
	os.Exit(redistest.Main(program{}, map[string]func(){"node": nodeMain}).Run())
}

type program struct{}

// measurement takes the figures of one or more bars.
type measurement struct {
	ids  []string
	take func(*stage) []row
}

var measurements = []measurement{
	{[]string{"P1"}, commandsPerCycle},
	{[]string{"P2"}, latency},
	{[]string{"P3"}, allocations},
	{[]string{"P4"}, serverTime},
	{[]string{"P5"}, handoff},
	{[]string{"P5", "P6"}, handoffOverNetwork},
	{[]string{"P6"}, commandsAmongHundred},
	{[]string{"P7"}, waitingCost},
	{[]string{"P8"}, renewals},
	{[]string{"P9"}, takeover},
	{[]string{"P10"}, cancelLatency},
	{[]string{"P11"}, ghosts},
	{[]string{"P12"}, throughput},
	{[]string{"P14"}, flashSale},
}

func (program) Run() int {
	short := flag.Bool("short", false, "take less than a minute, and judge only what can be counted")
	only := flag.String("only", "", "comma `list` of bars, P5 say; all if empty")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "unexpected argument %q\n", flag.Arg(0))
		return 2
	}
	rows, err := measureAll(*short, *only, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return present(os.Stdout, os.Stderr, rows)
}

func measureAll(short bool, only string, log io.Writer) (rows []row, err error) {
	for _, m := range measurements {
		if !m.wanted(only) {
			continue
		}
		began := time.Now()
		s := &stage{name: strings.Join(m.ids, ", "), short: short, log: log}
		some, err := s.run(m.take)
		if err != nil {
			return nil, err
		}
		for i := range some {
			some[i].id = cmp.Or(some[i].id, m.ids[0])
		}
		rows = append(rows, some...)
		s.Logf("%v", time.Since(began).Round(100*time.Millisecond))
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("-only %s: no such bar", only)
	}
	return rows, nil
}

func (m measurement) wanted(only string) bool {
	if only == "" {
		return true
	}
	for id := range strings.SplitSeq(only, ",") {
		for _, own := range m.ids {
			if strings.TrimSpace(id) == own {
				return true
			}
		}
	}
	return false
}

// present prints the table, and what in it no machine explains; it returns the program's exit status.
func present(out, log io.Writer, rows []row) (code int) {
	fmt.Fprintf(out, "%s, %d cores, Redis on loopback in a process of its own\n\n", runtime.Version(), runtime.NumCPU())
	printTable(out, rows)
	fmt.Fprintln(out, "\nP13, what waiting for a replica costs, is measured by bench/replicas_test.go.")
	for _, p := range peers {
		fmt.Fprintf(out, "\n%s: %s.", p.name, p.settings)
	}
	fmt.Fprintln(out)
	for _, r := range rows {
		if r.broken != "" {
			fmt.Fprintf(log, "BROKEN: %s %s: %s\n", r.id, r.figure, r.broken)
			code = 1
		}
	}
	return code
}
