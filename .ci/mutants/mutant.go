package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// A mutant is a guard taken out: in file, from stands once and becomes to. The
// tests are those of a package that must then fail.
type mutant struct {
	name     string
	file     string
	from, to string
	pkg      string
	tests    string // a regular expression
}

// errSurvived is returned if the tests passed.
var errSurvived = errors.New("survived")

// apply returns the file as the mutant has it.
func (m mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	if n := strings.Count(string(text), m.from); n != 1 {
		return nil, fmt.Errorf("%s has %d of what is to be changed: %q", m.file, n, m.from)
	}
	return []byte(strings.Replace(string(text), m.from, m.to, 1)), nil
}

// try runs the tests on the mutant; nil means that they failed, as they should.
func (m mutant) try(root, scratch string) error {
	overlay, err := m.overlay(root, scratch)
	if err != nil {
		return err
	}
	binary := overlay + ".test"
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-gcflags=-N -l", "-overlay", overlay, "-o", binary, m.pkg)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("does not build: %w\n%s", err, out)
	}
	defer os.Remove(binary)
	test := exec.Command(binary, "-test.failfast", "-test.timeout=60s", "-test.run", m.tests)
	test.Dir = filepath.Join(root, m.pkg)
	out, err := test.CombinedOutput()
	switch {
	case bytes.Contains(out, []byte("no tests to run")):
		return fmt.Errorf("no test is named %s", m.tests)
	case err == nil:
		return errSurvived
	}
	return nil
}

// overlay writes the mutant beside the tree and tells the compiler to take it for
// the file, and to leave out the tests that are not asked for: nothing in the tree is touched.
func (m mutant) overlay(root, scratch string) (string, error) {
	text, err := m.apply(root)
	if err != nil {
		return "", err
	}
	tests, err := regexp.Compile(m.tests)
	if err != nil {
		return "", err
	}
	without, err := unneeded(filepath.Join(root, m.pkg), tests)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(scratch, "")
	if err != nil {
		return "", err
	}
	changed := filepath.Join(dir, filepath.Base(m.file))
	replace := map[string]string{filepath.Join(root, m.file): changed}
	for _, path := range without {
		replace[path] = ""
	}
	asked, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(os.WriteFile(changed, text, 0o600), os.WriteFile(overlay, asked, 0o600))
}
