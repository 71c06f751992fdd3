package loader_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/levee-cache/levee/loader"
)

// outcome is what one call came to, and how often done was called.
type outcome struct {
	value string
	err   error
	calls int
}

func call(t *testing.T, f func(context.Context, int) (string, error)) outcome {
	t.Helper()
	var o outcome
	var wg sync.WaitGroup
	wg.Go(func() {
		loader.Call(t.Context(), loader.Func(f), 7, nil, func(r loader.Result[string], err error) {
			o.value, o.err = r.Value, err
			o.calls++
		})
	})
	wg.Wait()
	if o.calls != 1 {
		t.Fatalf("done was called %d times, want once", o.calls)
	}
	return o
}

func TestCall_PassesKeyAndValueOn(t *testing.T) {
	o := call(t, func(_ context.Context, k int) (string, error) { return fmt.Sprint("v", k), nil })
	if o.value != "v7" || o.err != nil {
		t.Fatalf("got %q, %v", o.value, o.err)
	}
}

func TestCall_KeepsTheErrorAsItIs(t *testing.T) {
	want := errors.New("down")
	o := call(t, func(context.Context, int) (string, error) { return "", want })
	if o.err != want {
		t.Fatalf("got %v, want %v", o.err, want)
	}
}

func TestCall_APanicBecomesAnErrorWithValueAndStack(t *testing.T) {
	cause := errors.New("boom")
	o := call(t, func(context.Context, int) (string, error) { panic(cause) })
	p, ok := errors.AsType[*loader.PanicError](o.err)
	if !ok {
		t.Fatalf("got %v, want a *PanicError", o.err)
	}
	if p.Value != cause || !errors.Is(o.err, cause) {
		t.Fatalf("the panic value is lost: %v", p.Value)
	}
	if !strings.Contains(string(p.Stack), "loader_test.go") {
		t.Fatalf("the stack does not lead to the load function:\n%s", p.Stack)
	}
	if strings.Contains(p.Error(), "goroutine") {
		t.Fatalf("the text carries the stack: %s", p.Error())
	}
}

func TestCall_APanicWithNilIsStillAPanic(t *testing.T) {
	o := call(t, func(context.Context, int) (string, error) { panic(nil) })
	if _, ok := errors.AsType[*loader.PanicError](o.err); !ok {
		t.Fatalf("got %v, want a *PanicError", o.err)
	}
}

func TestB22_GoexitBecomesAnError(t *testing.T) {
	o := call(t, func(context.Context, int) (string, error) { runtime.Goexit(); return "", nil })
	if o.err != loader.ErrGoexit {
		t.Fatalf("got %v, want ErrGoexit", o.err)
	}
}

func TestFunc_NilGivesANilLoader(t *testing.T) {
	if l := loader.Func[int, string](nil); l != nil {
		t.Fatalf("got %v, want nil", l)
	}
}
