package main

import (
	"strings"
	"testing"
	"time"
)

func sample() result {
	var seen recording
	for i := range 1000 {
		seen.add(time.Duration(i)*time.Microsecond, i%2 == 0)
	}
	return newResult("levee", "redis 7", settings{nodes: 2, callers: 3}, &seen, counts{loads: 9, expiries: 4, peak: 5}, 250)
}

func TestJSONHasExactlyThePromisedFields(t *testing.T) {
	var out strings.Builder
	if err := jsonLines(&out)(sample()); err != nil {
		t.Fatal(err)
	}
	const want = `{"mode":"levee","server":"redis 7","nodes":2,"callers":3,"reads":1000,"loads":9,"expiries":4,` +
		`"loads_per_expiry":2.25,"peak_loads":5,"stale":500,"errors":0,"p50_us":`
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("got %s", out.String())
	}
	if !strings.HasSuffix(out.String(), `"max_us":999,"redis_commands_per_read":0.25}`+"\n") {
		t.Errorf("got %s", out.String())
	}
}

func TestTheTableHasALineForEachMode(t *testing.T) {
	var out strings.Builder
	if err := table(&out, []result{sample(), sample()}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "2.25") || len(strings.Fields(lines[1])) != len(strings.Fields(heading))-1 {
		t.Errorf("got\n%s", out.String())
	}
}

func TestNumbersAreWrittenWithTheDigitsThatTellSomething(t *testing.T) {
	for x, want := range map[float64]string{0: "0.00", 0.00042: "0.00042", 1: "1.00", 399.6: "400"} {
		if got := short(x); got != want {
			t.Errorf("short(%v) = %s, want %s", x, got, want)
		}
	}
	for us, want := range map[float64]string{0.3: "0.3µs", 5200: "5.2ms", 3.2e6: "3.20s"} {
		if got := span(us); got != want {
			t.Errorf("span(%v) = %s, want %s", us, got, want)
		}
	}
}

func TestTheServerIsNamedByItsOwnName(t *testing.T) {
	for info, want := range map[string]string{
		"# Server\r\nredis_version:7.0.15\r\nos:Linux\r\n":                                              "redis 7.0.15",
		"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\nos:Linux\r\n": "valkey 8.1.1",
	} {
		if got := product(info); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
