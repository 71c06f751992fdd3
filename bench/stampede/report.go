package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
)

// result is one mode's line, in the table and as JSON.
type result struct {
	Mode                 string  `json:"mode"`
	Server               string  `json:"server"`
	Nodes                int     `json:"nodes"`
	Callers              int     `json:"callers"`
	Reads                int64   `json:"reads"`
	Loads                int64   `json:"loads"`
	Expiries             int64   `json:"expiries"`
	LoadsPerExpiry       float64 `json:"loads_per_expiry"`
	PeakLoads            int     `json:"peak_loads"`
	Stale                int64   `json:"stale"`
	Errors               int64   `json:"errors"`
	P50                  float64 `json:"p50_us"`
	P99                  float64 `json:"p99_us"`
	P999                 float64 `json:"p999_us"`
	Max                  float64 `json:"max_us"`
	RedisCommandsPerRead float64 `json:"redis_commands_per_read"`

	firstError error
}

func newResult(mode, server string, s settings, seen *recording, db counts, commands int64) result {
	reads := seen.reads.Load()
	return result{
		Mode: mode, Server: server, Nodes: s.nodes, Callers: s.callers,
		Reads: reads, Stale: seen.stale, Errors: seen.errors, firstError: seen.first,
		Loads: db.loads, Expiries: db.expiries, LoadsPerExpiry: db.perExpiry(), PeakLoads: db.peak,
		P50: micros(seen.quantile(0.5)), P99: micros(seen.quantile(0.99)),
		P999: micros(seen.quantile(0.999)), Max: micros(seen.max),
		RedisCommandsPerRead: float64(commands) / float64(max(reads, 1)),
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// jsonLines prints each result as it comes.
func jsonLines(out io.Writer) func(result) error {
	encoder := json.NewEncoder(out)
	return func(r result) error { return encoder.Encode(r) }
}

const heading = "mode\treads\tqueries\tper expiry\tpeak\tp50\tp99\tp99.9\tmax\tstale\tcommands/read\terrors\t"

// table prints the results side by side.
func table(out io.Writer, results []result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, heading)
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%d\t%s\t%s\t%s\t%s\t%d\t%s\t%d\t\n", r.Mode, r.Reads, r.Loads,
			short(r.LoadsPerExpiry), r.PeakLoads, span(r.P50), span(r.P99), span(r.P999), span(r.Max),
			r.Stale, short(r.RedisCommandsPerRead), r.Errors)
	}
	return w.Flush()
}

const legend = `
queries per expiry: database queries for each time a value passed its TTL; 1 is the least there can be
peak: most queries for one key at once; latencies are those of single reads, as the callers felt them
commands/read: everything the nodes sent to Redis, over the reads: pipelined, retried and subscribing commands too
`

// short writes a ratio with as many digits as tell something.
func short(x float64) string {
	switch {
	case x >= 100:
		return strconv.FormatFloat(x, 'f', 0, 64)
	case x >= 0.1 || x == 0:
		return strconv.FormatFloat(x, 'f', 2, 64)
	}
	return strconv.FormatFloat(x, 'f', 5, 64)
}

// span writes microseconds in the unit that fits.
func span(micros float64) string {
	switch {
	case micros >= 1e6:
		return fmt.Sprintf("%.2fs", micros/1e6)
	case micros >= 1e3:
		return fmt.Sprintf("%.1fms", micros/1e3)
	}
	return fmt.Sprintf("%.1fµs", micros)
}

// title says what was run.
func (s settings) title(server string) string {
	what := "one hot key"
	if s.keys > 1 {
		what = fmt.Sprintf("%d keys", s.keys)
	}
	if s.trace != "" {
		what = "the keys of " + s.trace
	}
	text := fmt.Sprintf("%s; %d nodes x %d callers; %s, fresh for %v", server, s.nodes, s.callers, what, s.ttl)
	if !s.kill { // it has windows of its own
		text += fmt.Sprintf(", stale for %v", s.stale)
	}
	text += fmt.Sprintf("; a query takes %v", s.load)
	if s.dbConns > 0 {
		text += fmt.Sprintf(", %d at once", s.dbConns)
	}
	return text
}
