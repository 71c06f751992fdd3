package lattice

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The README's program is the body of a tested example, to the letter.
func TestTheReadmeShowsATestedProgram(t *testing.T) {
	readme, example := read(t, "../../README.md"), read(t, "../../cache/example_test.go")
	_, rest, found := strings.Cut(example, "// README: from here\n")
	program, _, ended := strings.Cut(rest, "\t// README: to here\n")
	if !found || !ended {
		t.Fatal("cache/example_test.go does not mark the README's program")
	}
	var lines strings.Builder
	for line := range strings.Lines(program) {
		lines.WriteString(strings.TrimPrefix(line, "\t"))
	}
	if !strings.Contains(readme, "```go\n"+lines.String()+"```\n") {
		t.Errorf("README.md does not show this program:\n%s", lines.String())
	}
}

func TestTheReadmeIsShort(t *testing.T) {
	if n := strings.Count(read(t, "../../README.md"), "\n"); n >= 200 {
		t.Errorf("README.md has %d lines; below 200 is the rule", n)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")

// What the documents call a proof is one.
func TestEveryTestThatTheDocumentsNameExists(t *testing.T) {
	var tests strings.Builder
	for _, pattern := range []string{"../../*_test.go", "../../*/*_test.go", "../../*/*/*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, files, err)
		}
		for _, f := range files {
			tests.WriteString(read(t, f))
		}
	}
	named := 0
	for _, doc := range documents(t) {
		for _, m := range testName.FindAllStringSubmatch(read(t, doc), -1) {
			named++
			if !strings.Contains(tests.String(), "func "+m[1]+"(") {
				t.Errorf("%s names %s, which does not exist", doc, m[1])
			}
		}
	}
	if named == 0 {
		t.Error("the documents name no test")
	}
}

// The guide shows nothing but code of the example service, which is tested.
func TestTheGuideShowsCodeOfTheExample(t *testing.T) {
	files, err := filepath.Glob("../../examples/service/*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	var code strings.Builder
	for _, f := range files {
		code.WriteString(read(t, f))
	}
	blocks := strings.Split(read(t, "../../docs/guide.md"), "```go\n")[1:]
	for _, block := range blocks {
		shown, _, ended := strings.Cut(block, "```\n")
		if !ended || !strings.Contains(code.String(), shown) {
			t.Errorf("docs/guide.md shows what examples/service does not have:\n%s", shown)
		}
	}
	if len(blocks) == 0 {
		t.Error("the guide shows no code")
	}
}

func documents(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatal(docs, err)
	}
	return append(docs, "../../README.md", "../../CHANGELOG.md")
}
