package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
)

// testFile is what one test file declares and uses, by name alone. A method that stands beside its type is found through the
// type, which somebody names; one that stands elsewhere through whoever selects it.
type testFile struct {
	path     string
	declares names
	methods  map[string]names // of types that are declared elsewhere, by type
	uses     names
	selects  names
}

type names map[string]bool

func (n names) meet(other names) bool {
	for name := range n {
		if other[name] {
			return true
		}
	}
	return false
}

// unneeded are the test files of a package that the tests whose names match do without. Most of the
// time that a mutant takes is the compiling of tests.
func unneeded(dir string, tests *regexp.Regexp) (paths []string, err error) {
	rest, err := testFiles(dir)
	if err != nil {
		return nil, err
	}
	has := func(f *testFile) bool { return f.has(tests) }
	if !slices.ContainsFunc(rest, has) {
		return nil, fmt.Errorf("no test is named %v", tests)
	}
	all := testFile{declares: names{}, uses: names{}, selects: names{}} // what is needed, together
	for grown := true; grown; {
		grown = false
		rest = slices.DeleteFunc(rest, func(f *testFile) bool {
			if !has(f) && !f.always() && !all.leansOn(f) {
				return false
			}
			maps.Copy(all.declares, f.declares)
			maps.Copy(all.uses, f.uses)
			maps.Copy(all.selects, f.selects)
			grown = true
			return true
		})
	}
	for _, f := range rest {
		paths = append(paths, f.path)
	}
	return paths, nil
}

func testFiles(dir string) (files []*testFile, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return nil, err
	}
	for _, p := range paths {
		parsed, err := parser.ParseFile(token.NewFileSet(), p, nil, 0)
		if err != nil {
			return nil, err
		}
		files = append(files, readFile(p, parsed))
	}
	return files, nil
}

func readFile(path string, parsed *ast.File) *testFile {
	f := &testFile{path, names{}, map[string]names{}, names{}, names{}}
	for name := range parsed.Scope.Objects {
		f.declares[name] = true
	}
	for _, id := range parsed.Unresolved {
		f.uses[id.Name] = true
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			f.selects[n.Sel.Name] = true
		case *ast.FuncDecl:
			f.declare(n)
		}
		return true
	})
	return f
}

// declare notes what the file's scope does not know.
func (f *testFile) declare(d *ast.FuncDecl) {
	if d.Recv == nil {
		f.declares[d.Name.Name] = true // init, too
		return
	}
	of := receiver(d)
	if f.declares[of] {
		return
	}
	if f.methods[of] == nil {
		f.methods[of] = names{}
	}
	f.methods[of][d.Name.Name] = true
}

// receiver is the name of the type whose method d is.
func receiver(d *ast.FuncDecl) (name string) {
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return name == ""
	})
	return name
}

// has tells whether f has one of the tests.
func (f *testFile) has(tests *regexp.Regexp) bool {
	for name := range f.declares {
		if isTest.MatchString(name) && tests.MatchString(name) {
			return true
		}
	}
	return false
}

// always tells whether f has what every test needs.
func (f *testFile) always() bool { return f.declares["TestMain"] || f.declares["init"] }

// leansOn tells whether f does not compile without other.
func (f *testFile) leansOn(other *testFile) bool {
	for of, methods := range other.methods {
		if f.declares[of] && f.selects.meet(methods) {
			return true
		}
	}
	return f.uses.meet(other.declares)
}

var isTest = regexp.MustCompile(`^(Test|Fuzz|Example)`)
