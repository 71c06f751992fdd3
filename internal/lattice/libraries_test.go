package lattice

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// A place is where a third-party library may be named in production, so that
// replacing it changes that place and nothing else.
type place struct {
	library string
	rooms   []string
	oneFile bool
}

var places = []place{
	{"github.com/dgraph-io/ristretto/v2", []string{"cache"}, true},
	{"golang.org/x/sync/singleflight", []string{"rebuild"}, true},
	{"golang.org/x/sync/semaphore", []string{"rebuild"}, true},
	{"github.com/sony/gobreaker/v2", []string{"internal/link"}, true},
	{"github.com/google/uuid", []string{"internal/link", "lock", "rebuild"}, true},
	{"github.com/cespare/xxhash/v2", []string{"rebuild", "cache"}, false},
	{goRedis, []string{"internal/link", "lock", "rebuild", "cache"}, false},
}

const goRedis = "github.com/redis/go-redis/v9"

// clientTypes is all that cache may name of go-redis: it takes a client from
// the user and hands it down.
var clientTypes = []string{"UniversalClient", "Client", "ClusterClient", "Ring"}

// thirdParty tells a module's path from the standard library's and ours: its
// first element is a host name.
func thirdParty(importPath string) bool {
	host, _, _ := strings.Cut(importPath, "/")
	return strings.Contains(host, ".") && !ours(importPath)
}

func placeOf(importPath string) (place, bool) {
	i := slices.IndexFunc(places, func(p place) bool { return within(importPath, p.library) })
	if i < 0 {
		return place{}, false
	}
	return places[i], true
}

// misplaced lists the third-party imports outside their place.
func misplaced(files []source) (findings []string) {
	usedIn := make(map[string][]string)
	for _, s := range files {
		if s.isTest() || !slices.Contains(rooms, s.dir()) {
			continue
		}
		for imp, name := range s.imports() {
			if !thirdParty(imp) {
				continue
			}
			p, ok := placeOf(imp)
			if !ok || !slices.Contains(p.rooms, s.dir()) {
				findings = append(findings, fmt.Sprintf("%s imports %s: its place is %q", s.name, imp, p.rooms))
			}
			if !slices.Contains(usedIn[p.library], s.name) {
				usedIn[p.library] = append(usedIn[p.library], s.name)
			}
			if s.dir() == "cache" && p.library == goRedis {
				findings = append(findings, moreThanAClient(s, name)...)
			}
		}
	}
	for _, p := range places {
		if p.oneFile && len(usedIn[p.library]) > 1 {
			findings = append(findings, fmt.Sprintf("%s is named in %q: one file is its place", p.library, usedIn[p.library]))
		}
	}
	return findings
}

// moreThanAClient lists what a file takes from go-redis beside client types.
func moreThanAClient(s source, redis string) (findings []string) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if ok && isName(sel.X, redis) && !slices.Contains(clientTypes, sel.Sel.Name) {
			findings = append(findings, s.at(sel.Pos())+": cache knows go-redis's clients only, not its "+sel.Sel.Name)
		}
		return true
	})
	return findings
}

func isName(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

func TestEveryLibraryStaysInItsPlace(t *testing.T) {
	report(t, misplaced(goSources(t)))
}

func TestALibraryOutOfPlaceIsFound(t *testing.T) {
	redisIn := func(body string) string { return "import \"" + goRedis + "\"\n" + body }
	for _, tc := range []struct {
		situation string
		files     map[string]string
		findings  int
	}{
		{"in its place", map[string]string{"cache/local.go": `import "github.com/dgraph-io/ristretto/v2"`}, 0},
		{"a package of it beside it", map[string]string{"cache/local.go": "import (\n\"github.com/dgraph-io/ristretto/v2\"\n\"github.com/dgraph-io/ristretto/v2/z\"\n)"}, 0},
		{"in a second file", map[string]string{"cache/local.go": `import "github.com/dgraph-io/ristretto/v2"`, "cache/close.go": `import "github.com/dgraph-io/ristretto/v2"`}, 1},
		{"in another room", map[string]string{"rebuild/flight.go": `import "github.com/dgraph-io/ristretto/v2"`}, 1},
		{"under another name", map[string]string{"cache/group.go": `import sf "golang.org/x/sync/singleflight"`}, 1},
		{"in a test file", map[string]string{"cache/local_test.go": `import "golang.org/x/sync/singleflight"`}, 0},
		{"in the stampede program", map[string]string{"bench/stampede/flight.go": `import "golang.org/x/sync/singleflight"`}, 0},
		{"without a place", map[string]string{"cache/x.go": `import "example.org/x"`}, 1},
		{"a client named in cache", map[string]string{"cache/options.go": redisIn("type O struct{ R redis.UniversalClient }")}, 0},
		{"a command sent from cache", map[string]string{"cache/get.go": redisIn("var missing = redis.Nil")}, 1},
		{"a script in rebuild", map[string]string{"rebuild/script.go": redisIn("var s = redis.NewScript(``)")}, 0},
		{"redis in loader", map[string]string{"loader/x.go": redisIn("var missing = redis.Nil")}, 1},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			var files []source
			for name, text := range tc.files {
				files = append(files, goSource(t, name, "package p\n"+text))
			}
			if got := misplaced(files); len(got) != tc.findings {
				t.Errorf("findings %q, want %d", got, tc.findings)
			}
		})
	}
}
