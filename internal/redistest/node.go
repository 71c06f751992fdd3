package redistest

import (
	"bufio"
	"fmt"
	"iter"
	"os"
)

// Runner is what this package needs of a *testing.M, and what [Main] returns.
type Runner interface{ Run() int }

// Main is called from TestMain. In a process started by [Process] it runs the
// function of that name and does not return. Otherwise it returns m, with the
// shared server stopped after Run:
//
//	func TestMain(m *testing.M) {
//		goleak.VerifyTestMain(redistest.Main(m, map[string]func(){"node": node}))
//	}
func Main(m Runner, nodes map[string]func()) Runner {
	name, ok := os.LookupEnv(nodeVar)
	if !ok {
		return suite{m}
	}
	node := nodes[name]
	if node == nil {
		fmt.Fprintf(os.Stderr, "redistest: Main knows no node %q\n", name)
		os.Exit(2)
	}
	_ = os.Unsetenv(nodeVar)
	node()
	os.Exit(0)
	return nil
}

type suite struct{ m Runner }

func (s suite) Run() int {
	defer stopShared()
	return s.m.Run()
}

// Input yields the lines that a node is sent. It ends when the parent closes
// the input or dies; a node should return then.
func Input() iter.Seq[string] {
	return func(yield func(string) bool) {
		in := bufio.NewScanner(os.Stdin)
		in.Buffer(nil, 16<<20)
		for in.Scan() && yield(in.Text()) {
		}
	}
}

// Say prints one line for the parent, in the manner of fmt.Sprintf. Standard
// output is for such lines only; everything else belongs on standard error. It
// may be called from several goroutines.
func Say(format string, args ...any) {
	_, _ = os.Stdout.WriteString(fmt.Sprintf(format, args...) + "\n")
}
