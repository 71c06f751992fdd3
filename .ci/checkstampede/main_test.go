package main

import (
	"fmt"
	"strings"
	"testing"
)

func line(mode string, loadsPerExpiry float64, peak, errors int) string {
	return fmt.Sprintf(`{"mode":%q,"server":"redis-server 7.0.15","nodes":4,"callers":25,"reads":9000,"loads":4,"expiries":4,`+
		`"loads_per_expiry":%g,"peak_loads":%d,"stale":100,"errors":%d,"p50_us":3,"p99_us":9,"p999_us":40,"max_us":900,`+
		`"redis_commands_per_read":0.1}`+"\n", mode, loadsPerExpiry, peak, errors)
}

func TestOnlyAStoppedStampedePasses(t *testing.T) {
	none, flight, levee := line("none", 98.5, 100, 0), line("flight", 4, 4, 0), line("levee", 1, 1, 0)
	for _, tc := range []struct {
		situation, lines, fault string
	}{
		{"stopped", none + flight + levee, ""},
		{"in any order", levee + none + flight, ""},
		{"a late second load", none + flight + line("levee", 1.05, 1, 0), ""},
		{"errors without levee", line("none", 98.5, 100, 3) + flight + levee, ""},
		{"too many loads", none + flight + line("levee", 1.2, 1, 0), "levee: 1.200 loads per expiry"},
		{"no loads", none + flight + line("levee", 0, 1, 0), "levee: 0.000 loads per expiry"},
		{"two at once", none + flight + line("levee", 1, 2, 0), "levee: 2 loads at once"},
		{"errors", none + flight + line("levee", 1, 1, 3), "levee: 3 errors"},
		{"no stampede to stop", line("none", 9, 9, 0) + flight + levee, "none: 9.000 loads per expiry"},
		{"a mode is missing", none + levee, "modes"},
		{"a mode is there twice", none + flight + levee + levee, "modes"},
		{"nothing", "", "modes"},
		{"nothing expired", none + flight + strings.Replace(levee, `"expiries":4`, `"expiries":0`, 1), "levee: saw no expiry"},
		{"a field is missing", none + flight + strings.Replace(levee, `"errors":0,`, "", 1), `no field "errors"`},
		{"no JSON", "mode reads\n" + levee, "invalid character"},
		{"cut off", none + flight + levee[:40], "unexpected EOF"},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			err := check(strings.NewReader(tc.lines))
			if tc.fault == "" && err != nil {
				t.Errorf("refused: %v", err)
			}
			if tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)) {
				t.Errorf("error %v, want %q", err, tc.fault)
			}
		})
	}
}
