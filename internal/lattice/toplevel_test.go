package lattice

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// topLevel is all that may lie beside go.mod, dot files apart. Anything else
// has to earn its place here first.
var topLevel = []string{
	"go.mod", "go.sum", "cache", "rebuild", "lock", "loader", "bench", "cache_test.go",
	"README.md", "LICENSE", "CHANGELOG.md", "docs", "internal", "examples",
}

// mayLie tells whether a name may stand at the top level. What .gitignore names,
// a profile or a test binary, is nobody's commit.
func mayLie(name string, ignored []string) bool {
	isIgnored := func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	}
	return strings.HasPrefix(name, ".") || slices.Contains(topLevel, name) || slices.ContainsFunc(ignored, isIgnored)
}

func TestTheTopLevelHoldsOnlyWhatEarnedItsPlace(t *testing.T) {
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	gitignore, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !mayLie(e.Name(), strings.Fields(string(gitignore))) {
			t.Errorf("%s may not stand at the top level", e.Name())
		}
	}
}

func TestAStrangerAtTheTopLevelIsFound(t *testing.T) {
	for name, want := range map[string]bool{
		"cache": true, ".ci": true, ".golangci.yml": true, "levee.test": true,
		"levee.go": false, "util": false, "Makefile": false, "caches": false,
	} {
		if mayLie(name, []string{"*.test", "*.out"}) != want {
			t.Errorf("%s: may stand at the top level is %t, want %t", name, !want, want)
		}
	}
}
