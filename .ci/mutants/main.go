// Command mutants takes the guards of the protocol and of the local tier out, one
// at a time, and runs the tests that should notice. It fails if one of these
// mutants survives, does not build, or no longer fits the code.
//
// Mutation testers at large change operators everywhere, which takes hours and
// finds much that nobody has promised. This table has what was promised.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"sync"
	"time"
)

func main() {
	only := flag.String("only", "", "run the mutants whose `name` matches this regular expression")
	root := flag.String("root", ".", "the module's `directory`")
	flag.Parse()
	if err := run(*root, regexp.MustCompile(*only)); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(root string, only *regexp.Regexp) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "levee-mutants-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	jobs := make(chan mutant)
	var workers sync.WaitGroup
	var tally tally
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for m := range jobs {
				began := time.Now()
				tally.add(m, m.try(root, scratch), time.Since(began))
			}
		})
	}
	for _, m := range mutants {
		if only.MatchString(m.name) {
			jobs <- m
		}
	}
	close(jobs)
	workers.Wait()
	return tally.err()
}

// tally gathers what became of the mutants.
type tally struct {
	mu     sync.Mutex // guards what follows
	killed int
	failed []string
}

func (t *tally) add(m mutant, err error, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		t.killed++
		fmt.Printf("killed    %5.1f s  %s\n", took.Seconds(), m.name)
		return
	}
	t.failed = append(t.failed, m.name)
	fmt.Printf("NOT DEAD  %5.1f s  %s: %v\n", took.Seconds(), m.name, err)
}

func (t *tally) err() error {
	fmt.Printf("%d mutants killed, %d not\n", t.killed, len(t.failed))
	switch {
	case len(t.failed) > 0:
		return fmt.Errorf("not dead: %q", t.failed)
	case t.killed == 0:
		return fmt.Errorf("no mutant was tried")
	}
	return nil
}
