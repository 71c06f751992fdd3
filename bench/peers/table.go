package main

import (
	"fmt"
	"io"
	"strings"
)

// row is a line of the table.
type row struct {
	id, figure, bar string
	values          map[string]string // by peer; what was not measured is left out
	rtt             string            // under which it was measured
	verdict         verdict
	broken          string // why no machine, however slow or busy, explains the figure; "" if all is well
}

// verdict is what a figure comes to.
type verdict string

const (
	met     verdict = "met"
	missed  verdict = "**missed**"
	anyhow  verdict = "–"       // there is no bar
	unasked verdict = "(short)" // a bar for the speed of machines, in the short form
)

// judge compares with a bar that says something of any machine.
func judge(ok bool) verdict {
	if ok {
		return met
	}
	return missed
}

// judgeSpeed compares with one that a busy machine may miss: the short form does not ask.
func (s *stage) judgeSpeed(ok bool) verdict {
	if s.short {
		return unasked
	}
	return judge(ok)
}

// gate is the fault of a row whose figure must hold everywhere.
func gate(ok bool, format string, args ...any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

func printTable(out io.Writer, rows []row) {
	names := make([]string, len(peers))
	for i, p := range peers {
		names[i] = p.name
	}
	fmt.Fprintf(out, "|  | figure | bar | %s | RTT | bar is |\n|---|---|---|%s---|---|\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for _, r := range rows {
		cells := []string{r.id, r.figure, r.bar}
		for _, name := range names {
			value, ok := r.values[name]
			if !ok {
				value = "–"
			}
			cells = append(cells, value)
		}
		fmt.Fprintf(out, "| %s |\n", strings.Join(append(cells, r.rtt, string(r.verdict)), " | "))
	}
}
