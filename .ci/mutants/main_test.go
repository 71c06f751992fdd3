package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func TestEveryMutantFitsTheCode(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("two are named %q", m.name)
		}
		names[m.name] = true
		if m.from == m.to {
			t.Errorf("%s changes nothing", m.name)
		}
		if _, err := m.apply(root); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if _, err := regexp.Compile(m.tests); err != nil || m.tests == "" {
			t.Errorf("%s: tests %q: %v", m.name, m.tests, err)
		}
	}
	if len(mutants) < 20 {
		t.Errorf("there are %d mutants", len(mutants))
	}
}

// module writes a module with one function and a test that knows its answer.
func module(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.com/m\n\ngo 1.26\n",
		"m.go":      "package m\n\nfunc one() int { return 1 }\n\nfunc unseen() int { return 2 }\n",
		"m_test.go": "package m\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif one() != 1 || unseen() == 0 {\n\t\tt.Fail()\n\t}\n}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestOnlyATestThatFailsKillsAMutant(t *testing.T) {
	dir := module(t)
	for _, tc := range []struct {
		m    mutant
		want string // what the error says; empty for killed
	}{
		{mutant{from: "return 1", to: "return 3", tests: "TestOne"}, ""},
		{mutant{from: "return 2", to: "return 3", tests: "TestOne"}, "survived"},
		{mutant{from: "return 1", to: "return x", tests: "TestOne"}, "does not build"},
		{mutant{from: "return 1", to: "return 3", tests: "TestTwo"}, "no test is named"},
		{mutant{from: "return 9", to: "return 3", tests: "TestOne"}, "has 0 of what"},
		{mutant{from: "return", to: "return 3 +", tests: "TestOne"}, "has 2 of what"},
	} {
		tc.m.file, tc.m.pkg = "m.go", "."
		err := tc.m.try(dir, t.TempDir())
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s to %s with %s: %v, want %q", tc.m.from, tc.m.to, tc.m.tests, err, tc.want)
		}
	}
}

func TestTheTallyFailsForOneSurvivorAndForNothingTried(t *testing.T) {
	var none, all, some tally
	all.add(mutant{name: "a"}, nil, 0)
	some.add(mutant{name: "a"}, nil, 0)
	some.add(mutant{name: "b"}, errSurvived, 0)
	if none.err() == nil || all.err() != nil || some.err() == nil {
		t.Error(errors.Join(none.err(), all.err(), some.err()))
	}
}

func TestOnlyTheTestFilesThatAreNeededAreCompiled(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"asked_test.go":  "func TestAsked(t *testing.T) { newRig().turn() }",
		"rig_test.go":    "type rig struct{}\nfunc newRig() *rig { return &rig{} }",
		"turn_test.go":   "func (r *rig) turn() { depth() }",
		"deep_test.go":   "func depth() { var aside int; _ = aside }",
		"main_test.go":   "func TestMain(m *testing.M) {}",
		"method_test.go": "func (r *rig) lift() {}",
		"field_test.go":  "type other struct{}\nfunc (o *other) turn() {}",
		"aside_test.go":  "func aside() {}\nfunc TestAside(t *testing.T) { newRig() }",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("package m\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	paths, err := unneeded(dir, regexp.MustCompile("Asked"))
	var got []string
	for _, p := range paths {
		got = append(got, filepath.Base(p))
	}
	slices.Sort(got)
	if want := []string{"aside_test.go", "field_test.go", "method_test.go"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("left out %v, %v; want %v", got, err, want)
	}
}
