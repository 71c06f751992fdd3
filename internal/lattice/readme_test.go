package lattice

import (
	"os"
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
