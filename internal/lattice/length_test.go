package lattice

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

const longestFunction = 60

// A measured function and its length, from `func` to the closing brace.
type measured struct {
	where string
	lines int
}

func measure(files []source) (all []measured) {
	for _, s := range files {
		if s.isTest() {
			continue
		}
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				all = append(all, measured{s.at(f.Pos()) + " " + f.Name.Name, s.line(f.End()) - s.line(f.Type.Func) + 1})
			}
		}
	}
	return all
}

func tooLong(all []measured) (findings []string) {
	for _, m := range all {
		if m.lines > longestFunction {
			findings = append(findings, fmt.Sprintf("%s is %d lines long, the most is %d", m.where, m.lines, longestFunction))
		}
	}
	return findings
}

func TestNoFunctionIsLongerThanAScreen(t *testing.T) {
	all := measure(goSources(t))
	report(t, tooLong(all))
	if len(all) > 0 {
		slices.SortFunc(all, func(a, b measured) int { return a.lines - b.lines })
		t.Logf("%d functions: median %d lines, nine in ten at most %d", len(all), all[len(all)/2].lines, all[len(all)*9/10].lines)
	}
}

func TestALongFunctionIsFound(t *testing.T) {
	function := func(lines int) string { return "package p\nfunc f() {" + strings.Repeat("\n", lines-1) + "}\n" }
	for _, tc := range []struct {
		name            string
		lines, findings int
	}{
		{"cache/get.go", longestFunction, 0},
		{"cache/get.go", longestFunction + 1, 1},
		{"cache/get_test.go", longestFunction + 1, 0},
	} {
		s := goSource(t, tc.name, function(tc.lines))
		if got := tooLong(measure([]source{s})); len(got) != tc.findings {
			t.Errorf("%d lines in %s: findings %q, want %d", tc.lines, tc.name, got, tc.findings)
		}
	}
}
