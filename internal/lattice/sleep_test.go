package lattice

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// realTime is the excuse for a sleep outside a bubble, with its reason.
var realTime = regexp.MustCompile(`^//\s*real time:\s*\S`)

// bubbles returns, as package.name, the functions that run what they are given
// in a bubble: synctest.Test and those that hand a function on to it.
func bubbles(files []source) map[string]bool {
	names := map[string]bool{"synctest.Test": true}
	for known := 0; len(names) > known; { // one may hand on to another that stands further down
		known = len(names)
		for _, s := range files {
			for _, d := range s.file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && takesAFunc(f) && calls(s, f, names) {
					names[s.file.Name.Name+"."+f.Name.Name] = true
				}
			}
		}
	}
	return names
}

func takesAFunc(f *ast.FuncDecl) bool {
	return slices.ContainsFunc(f.Type.Params.List, func(p *ast.Field) bool {
		_, ok := p.Type.(*ast.FuncType)
		return ok
	})
}

// calls tells whether a function of s calls one of the names.
func calls(s source, f *ast.FuncDecl, names map[string]bool) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			found = found || names[calledName(s, call)]
		}
		return !found
	})
	return found
}

func calledName(s source, call *ast.CallExpr) string {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return s.file.Name.Name + "." + fun.Name
	case *ast.SelectorExpr:
		if x, ok := fun.X.(*ast.Ident); ok {
			return x.Name + "." + fun.Sel.Name
		}
	}
	return ""
}

// sleepers lists the sleeps in test files that wait for real time. A sleep is
// all right in a function that opens a bubble or whose doc comment says that it
// runs in one, and where `// real time: <reason>` stands on its line.
func sleepers(files []source) (findings []string) {
	inBubble := bubbles(files)
	for _, s := range files {
		name, ok := s.imports()["time"]
		if !s.isTest() || !ok {
			continue
		}
		excused := excusedLines(s)
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && (calls(s, f, inBubble) || strings.Contains(f.Doc.Text(), "bubble")) {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if ok && isName(sel.X, name) && sel.Sel.Name == "Sleep" && !excused[s.line(sel.Pos())] {
					findings = append(findings, s.at(sel.Pos())+": sleeps outside a bubble")
				}
				return true
			})
		}
	}
	return findings
}

func excusedLines(s source) map[int]bool {
	lines := make(map[int]bool)
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			if realTime.MatchString(c.Text) {
				lines[s.line(c.Pos())] = true
			}
		}
	}
	return lines
}

func TestOnlyBubblesSleep(t *testing.T) {
	report(t, sleepers(goSources(t)))
}

func TestASleepOutsideABubbleIsFound(t *testing.T) {
	helper := goSource(t, "internal/redistest/bubble.go", `package redistest
		import ("testing"; "testing/synctest")
		func Bubble(t *testing.T, f func(*testing.T)) { synctest.Test(t, f) }`)
	for _, tc := range []struct {
		situation, code string
		findings        int
	}{
		{"bare", `func TestX(t *testing.T) { time.Sleep(1) }`, 1},
		{"in a goroutine", `func TestX(t *testing.T) { go func() { time.Sleep(1) }() }`, 1},
		{"as a value", `var wait = time.Sleep`, 1},
		{"in a bubble", `func TestX(t *testing.T) { synctest.Test(t, func(t *testing.T) { time.Sleep(1) }) }`, 0},
		{"in a bubble that a helper opens", `func TestX(t *testing.T) { redistest.Bubble(t, func(t *testing.T) { time.Sleep(1) }) }`, 0},
		{"in a subtest of it", `func TestX(t *testing.T) { t.Run("", func(t *testing.T) { time.Sleep(1) }) }`, 1},
		{"in a helper", `func settle() { time.Sleep(1) }`, 1},
		{"in a helper for bubbles", "// settle lets the bubble's clock run.\nfunc settle() { time.Sleep(1) }", 0},
		{"with a reason", `func TestX(t *testing.T) { time.Sleep(1) } // real time: a process is stopped`, 0},
		{"with an empty reason", `func TestX(t *testing.T) { time.Sleep(1) } // real time:`, 1},
		{"of another kind", `func TestX(t *testing.T) { <-time.After(1) }`, 0},
	} {
		t.Run(tc.situation, func(t *testing.T) {
			s := goSource(t, "cache/x_test.go", "package p\nimport \"time\"\n"+tc.code)
			if got := sleepers([]source{helper, s}); len(got) != tc.findings {
				t.Errorf("findings %q, want %d", got, tc.findings)
			}
		})
	}
	if s := goSource(t, "cache/x_test.go", "package p\nimport clock \"time\"\nfunc f() { clock.Sleep(1) }"); len(sleepers([]source{s})) != 1 {
		t.Error("a sleep under another import name was not found")
	}
}
