package lattice

import (
	"slices"
	"testing"
)

// testLibraries must not reach a user's binary, by whatever way.
var testLibraries = []string{
	"testing",
	"net/http/httptest",
	"github.com/alicebob/miniredis",
	"github.com/stretchr/testify",
	"go.uber.org/goleak",
	modulePath + "/internal/redistest",
	modulePath + "/internal/lattice",
}

func isTestLibrary(importPath string) bool {
	return slices.ContainsFunc(testLibraries, func(lib string) bool { return within(importPath, lib) })
}

func TestNoTestLibraryReachesAUser(t *testing.T) {
	all := packages(t)
	for _, room := range rooms {
		t.Run(room, func(t *testing.T) {
			pkg, ok := all[room]
			if !ok {
				t.Fatal("this room does not stand")
			}
			for _, dep := range pkg.Deps {
				if isTestLibrary(dep) {
					t.Errorf("%s depends on %s: go list -deps ./%[1]s", room, dep)
				}
			}
		})
	}
}

func TestTestLibrariesAreKnownByPath(t *testing.T) {
	for _, p := range []string{"testing", "testing/synctest", "github.com/alicebob/miniredis/v2/server", "go.uber.org/goleak"} {
		if !isTestLibrary(p) {
			t.Errorf("%s passes for production", p)
		}
	}
	for _, p := range []string{"context", "net/http", "go.uber.org/atomic", modulePath + "/internal/link"} {
		if isTestLibrary(p) {
			t.Errorf("%s passes for a test library", p)
		}
	}
}
