// Command checkstampede reads what `go run ./bench/stampede -json` printed and
// fails unless levee stopped the stampede that went through without it.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// modes are what one run compares.
var modes = []string{"none", "flight", "levee"}

// fields are what every line must have.
var fields = []string{
	"mode", "server", "nodes", "callers", "reads", "loads", "expiries", "loads_per_expiry", "peak_loads",
	"stale", "errors", "p50_us", "p99_us", "p999_us", "max_us", "redis_commands_per_read",
}

// A result is what one line says of its mode, as far as it is judged.
type result struct {
	Mode           string  `json:"mode"`
	Server         string  `json:"server"`
	Reads          int64   `json:"reads"`
	Expiries       int64   `json:"expiries"`
	LoadsPerExpiry float64 `json:"loads_per_expiry"`
	PeakLoads      int64   `json:"peak_loads"`
	Errors         int64   `json:"errors"`
}

// UnmarshalJSON also refuses a line that lacks a field: zero would pass for a
// good result.
func (r *result) UnmarshalJSON(line []byte) error {
	var has map[string]json.RawMessage
	if err := json.Unmarshal(line, &has); err != nil {
		return err
	}
	for _, f := range fields {
		if _, ok := has[f]; !ok {
			return fmt.Errorf("no field %q in %s", f, line)
		}
	}
	type plain result
	return json.Unmarshal(line, (*plain)(r))
}

// faults says what is wrong with one mode's result.
func (r result) faults() error {
	var all []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, fmt.Errorf(r.Mode+": "+format, args...))
		}
	}
	must(r.Server != "", "does not say which server it ran on")
	must(r.Reads > 0, "made no reads")
	must(r.Expiries > 0, "saw no expiry: nothing was tried")
	switch r.Mode {
	case "levee":
		must(r.LoadsPerExpiry >= 1 && r.LoadsPerExpiry <= 1.05, "%.3f loads per expiry, want 1 to 1.05", r.LoadsPerExpiry)
		must(r.PeakLoads == 1, "%d loads at once, want 1", r.PeakLoads)
		must(r.Errors == 0, "%d errors", r.Errors)
	case "none":
		must(r.LoadsPerExpiry > 10, "%.3f loads per expiry, want a stampede of over 10", r.LoadsPerExpiry)
	}
	return errors.Join(all...)
}

// check reads the lines and judges them.
func check(lines io.Reader) error {
	var all []error
	var seen []string
	for dec := json.NewDecoder(lines); ; {
		var r result
		if err := dec.Decode(&r); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		seen = append(seen, r.Mode)
		all = append(all, r.faults())
	}
	slices.Sort(seen)
	if want := slices.Sorted(slices.Values(modes)); !slices.Equal(seen, want) {
		all = append(all, fmt.Errorf("modes %q, want each of %q once", seen, want))
	}
	return errors.Join(all...)
}

func main() {
	if err := check(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("levee stopped the stampede")
}
