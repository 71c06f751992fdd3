package lattice

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	modulePath = "github.com/levee-cache/levee"
	root       = "../.."
)

// rooms are the packages that reach a user's binary.
var rooms = []string{"loader", "internal/link", "lock", "rebuild", "cache"}

// A source is one text file of this module, nested modules included.
type source struct {
	name string // slash-separated, from the top level
	text []byte
	fset *token.FileSet
	file *ast.File // nil unless it is Go
}

func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

func (s source) dir() string { return path.Dir(s.name) }

func (s source) line(p token.Pos) int { return s.fset.Position(p).Line }

func (s source) at(p token.Pos) string { return s.name + ":" + strconv.Itoa(s.line(p)) }

// imports returns import path → the name it has in the file.
func (s source) imports() map[string]string {
	names := make(map[string]string)
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		names[p] = localName(p)
		if spec.Name != nil {
			names[p] = spec.Name.Name
		}
	}
	return names
}

// localName guesses the package name: the last element that is no version.
func localName(importPath string) string {
	base := path.Base(importPath)
	if len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		base = path.Base(path.Dir(importPath))
	}
	return strings.TrimPrefix(base, "go-")
}

func parseSource(name string, text []byte) (source, error) {
	s := source{name: name, text: text, fset: token.NewFileSet()}
	if !strings.HasSuffix(name, ".go") {
		return s, nil
	}
	var err error
	s.file, err = parser.ParseFile(s.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	return s, err
}

// goSource parses the text of a file that a rule is tried on.
func goSource(t *testing.T, name, text string) source {
	t.Helper()
	s, err := parseSource(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readSources reads every .go and .md file. That this test process opens the
// files itself also makes go test run it again when one of them changes, which
// it would not see from the go command's reads.
var readSources = sync.OnceValues(func() (all []source, err error) {
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if ext := filepath.Ext(p); !d.Type().IsRegular() || ext != ".go" && ext != ".md" {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		s, err := parseSource(filepath.ToSlash(name), text)
		all = append(all, s)
		return err
	})
	return all, err
})

func sources(t *testing.T) []source {
	t.Helper()
	all, err := readSources()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func goSources(t *testing.T) (files []source) {
	t.Helper()
	for _, s := range sources(t) {
		if s.file != nil {
			files = append(files, s)
		}
	}
	return files
}

// A listed package is what `go list` says of it; test files take no part.
type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

// room is the import path without the module's.
func (p listed) room() string { return strings.TrimPrefix(p.ImportPath, modulePath+"/") }

var listPackages = sync.OnceValues(func() ([]listed, error) {
	// -e: a package that does not build is go build's to report.
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Imports,Deps", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, stderrOf(err))
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

func stderrOf(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return errors.New(string(exit.Stderr))
	}
	return nil
}

func packages(t *testing.T) map[string]listed {
	t.Helper()
	sources(t) // makes the test's result depend on every file
	all, err := listPackages()
	if err != nil {
		t.Fatal(err)
	}
	byRoom := make(map[string]listed)
	for _, p := range all {
		byRoom[p.room()] = p
	}
	if _, ok := byRoom["internal/lattice"]; !ok {
		t.Fatalf("go list does not see this module: %v", all)
	}
	return byRoom
}

// ours tells whether an import path lies in this module.
func ours(importPath string) bool { return within(importPath, modulePath) }

// within tells whether p is dir or lies below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

func report(t *testing.T, findings []string) {
	t.Helper()
	for _, f := range findings {
		t.Error(f)
	}
}
