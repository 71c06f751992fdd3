package lattice

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// arrows is the import policy: a room may import what is right of its arrow and
// nothing else of this module. A line names only rooms above it, so that no
// arrow can run back. Test files are free: they may look into any room.
const arrows = `
loader             ->
internal/link      ->
lock               -> internal/link
rebuild            -> lock loader internal/link
cache              -> rebuild loader internal/link

internal/redistest ->
internal/lattice   ->

bench              -> cache rebuild lock loader internal/link internal/redistest
bench/stampede     -> cache rebuild lock loader internal/link internal/redistest bench
`

// A policy maps a room to the rooms that it may import.
type policy map[string][]string

func parsePolicy(text string) (policy, error) {
	p := make(policy)
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		from, to, ok := strings.Cut(line, "->")
		room := strings.TrimSpace(from)
		if _, twice := p[room]; !ok || room == "" || twice {
			return nil, fmt.Errorf("no new arrow: %q", line)
		}
		for r := range strings.FieldsSeq(to) {
			if _, above := p[r]; !above {
				return nil, fmt.Errorf("%s -> %s: %[2]s is not above", room, r)
			}
		}
		p[room] = strings.Fields(to)
	}
	return p, nil
}

// against lists what the package imports and may not.
func (p policy) against(pkg listed) (findings []string) {
	allowed, ok := p[pkg.room()]
	if !ok {
		return []string{pkg.room() + ": this package is in no room; give it a line in the policy"}
	}
	for _, imp := range pkg.Imports {
		room := strings.TrimPrefix(imp, modulePath+"/")
		if ours(imp) && !slices.Contains(allowed, room) {
			findings = append(findings, pkg.room()+" imports "+room+": no arrow allows it")
		}
	}
	return findings
}

func TestImportsFollowTheArrows(t *testing.T) {
	p, err := parsePolicy(arrows)
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range packages(t) {
		// The top level holds the promises as a user would write them: tests only.
		if pkg.ImportPath == modulePath && len(pkg.Imports) == 0 {
			continue
		}
		report(t, p.against(pkg))
	}
}

func TestAnArrowThatRunsBackIsRefused(t *testing.T) {
	for _, text := range []string{
		"loader -> cache\ncache -> loader",
		"cache -> cache",
		"cache ->\ncache ->",
		"cache <- loader",
	} {
		if p, err := parsePolicy(text); err == nil {
			t.Errorf("%q was read as %v", text, p)
		}
	}
}

func TestAnImportWithoutAnArrowIsFound(t *testing.T) {
	p, err := parsePolicy(arrows)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		room, imports string
		findings      int
	}{
		{"cache", "/rebuild", 0},
		{"cache", "/lock", 1},
		{"rebuild", "/lock", 0},
		{"rebuild", "/cache", 1},
		{"lock", "/rebuild", 1},
		{"internal/link", "/lock", 1},
		{"loader", "/internal/link", 1},
		{"cache", "/internal/redistest", 1},
		{"cache", "", 1},
		{"cache", "-other/rebuild", 0},
		{"cache/codec", "/loader", 1},
	} {
		pkg := listed{ImportPath: modulePath + "/" + tc.room, Imports: []string{"context", modulePath + tc.imports}}
		if got := p.against(pkg); len(got) != tc.findings {
			t.Errorf("%s importing %q: findings %q, want %d", tc.room, tc.imports, got, tc.findings)
		}
	}
}
