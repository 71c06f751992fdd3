package loader_test

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/levee-cache/levee/loader"
)

type (
	previous = *loader.Previous[string]
	result   = loader.Result[string]
)

// ended is what one call of a loader in its full form came to.
type ended struct {
	result
	err   error
	calls int
}

// revalidated calls l through Call, in a goroutine of its own: it may end it.
func revalidated(t *testing.T, l loader.Loader[int, string], p previous) (e ended) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		loader.Call(t.Context(), l, 7, p, func(r result, err error) {
			e.result, e.err = r, err
			e.calls++
		})
	})
	wg.Wait()
	if e.calls != 1 {
		t.Fatalf("done was called %d times, want once", e.calls)
	}
	return e
}

// answers is a loader that gives the same answer always.
func answers(r result, err error) loader.Loader[int, string] {
	return loader.Revalidate(func(context.Context, int, previous) (result, error) { return r, err })
}

func TestRevalidate_IsGivenTheKeyAndThePreviousValue(t *testing.T) {
	want := &loader.Previous[string]{Value: "v1", RowVersion: 7, Version: 8, Age: time.Second}
	for _, given := range []previous{nil, want} {
		l := loader.Revalidate(func(ctx context.Context, key int, p previous) (result, error) {
			if ctx.Done() != t.Context().Done() || key != 7 || p != given {
				t.Errorf("got key %d, previous %v, want 7, %v", key, p, given)
			}
			return result{Value: "v2"}, nil
		})
		if e := revalidated(t, l, given); e.err != nil || !reflect.DeepEqual(e.result, result{Value: "v2"}) {
			t.Errorf("got %+v, %v", e.result, e.err)
		}
	}
}

func TestRevalidate_TheResultIsPassedOnAsItIs(t *testing.T) {
	for _, want := range []result{
		{},
		{Value: "v2", TTL: time.Hour, RowVersion: 7, NoStore: true},
		{Value: "ignored", NotModified: true, TTL: -1},
	} {
		if e := revalidated(t, answers(want, nil), &loader.Previous[string]{}); e.err != nil || !reflect.DeepEqual(e.result, want) {
			t.Errorf("got %+v, %v, want %+v", e.result, e.err, want)
		}
	}
}

func TestRevalidate_AnErrorComesWithTheOwnTTL(t *testing.T) {
	want := result{TTL: time.Hour, NoStore: true}
	e := revalidated(t, answers(want, loader.ErrNotFound), nil)
	if e.err != loader.ErrNotFound || !reflect.DeepEqual(e.result, want) {
		t.Errorf("got %+v, %v", e.result, e.err)
	}
}

func TestRevalidate_NotModifiedWithoutAPreviousValueIsAnError(t *testing.T) {
	l := answers(result{NotModified: true}, nil)
	if e := revalidated(t, l, nil); !errors.Is(e.err, loader.ErrNoPrevious) {
		t.Errorf("Call: got %v", e.err)
	}
	if e := revalidated(t, l, &loader.Previous[string]{}); e.err != nil { // a zero value is a value
		t.Errorf("Call with a previous value: got %v", e.err)
	}
	if _, err := l.Load(t.Context(), 7); !errors.Is(err, loader.ErrNoPrevious) {
		t.Errorf("Load: got %v", err)
	}
}

func TestRevalidate_TheFunctionsOwnErrorIsNotReplaced(t *testing.T) {
	down := errors.New("down")
	l := answers(result{NotModified: true}, down)
	if e := revalidated(t, l, nil); e.err != down {
		t.Errorf("Call: got %v", e.err)
	}
	if _, err := l.Load(t.Context(), 7); err != down {
		t.Errorf("Load: got %v", err)
	}
}

func TestRevalidate_LoadGivesNoPreviousValue(t *testing.T) {
	l := loader.Revalidate(func(_ context.Context, key int, p previous) (result, error) {
		if key != 7 || p != nil {
			t.Errorf("got key %d, previous %v", key, p)
		}
		return result{Value: "v1", NoStore: true}, nil
	})
	if v, err := l.Load(t.Context(), 7); v != "v1" || err != nil {
		t.Errorf("got %q, %v", v, err)
	}
}

func TestRevalidate_APanicAndAGoexitBecomeErrorsWithoutAResult(t *testing.T) {
	l := loader.Revalidate(func(_ context.Context, _ int, p previous) (r result, err error) {
		if p == nil {
			runtime.Goexit()
		}
		panic("boom")
	})
	e := revalidated(t, l, &loader.Previous[string]{})
	if p, ok := errors.AsType[*loader.PanicError](e.err); !ok || p.Value != "boom" || !reflect.DeepEqual(e.result, result{}) {
		t.Errorf("panic: got %+v, %v", e.result, e.err)
	}
	if e := revalidated(t, l, nil); e.err != loader.ErrGoexit || !reflect.DeepEqual(e.result, result{}) {
		t.Errorf("Goexit: got %+v, %v", e.result, e.err)
	}
}

func TestRevalidate_NilGivesANilLoader(t *testing.T) {
	if l := loader.Revalidate[int, string](nil); l != nil {
		t.Errorf("got %v, want nil", l)
	}
}

func TestCall_ALoaderOfAFuncIsFreeOfPreviousValues(t *testing.T) {
	l := loader.Func(func(context.Context, int) (string, error) { return "v2", nil })
	if _, ok := l.(loader.Revalidator[int, string]); ok {
		t.Error("a Func says that it revalidates")
	}
	if e := revalidated(t, l, &loader.Previous[string]{Value: "v1"}); e.err != nil || !reflect.DeepEqual(e.result, result{Value: "v2"}) {
		t.Errorf("got %+v, %v", e.result, e.err)
	}
}

// ownForm is a user's type with both methods.
type ownForm struct{ t *testing.T }

func (o ownForm) Load(context.Context, int) (string, error) {
	o.t.Error("Load was called")
	return "", nil
}

func (o ownForm) Revalidate(_ context.Context, _ int, p previous) (result, error) {
	return result{NotModified: true, RowVersion: p.RowVersion + 1}, nil
}

func TestCall_AnyTypeWithTheMethodIsCalledInItsFullForm(t *testing.T) {
	e := revalidated(t, ownForm{t}, &loader.Previous[string]{RowVersion: 7})
	if want := (result{NotModified: true, RowVersion: 8}); e.err != nil || !reflect.DeepEqual(e.result, want) {
		t.Errorf("got %+v, %v, want %+v", e.result, e.err, want)
	}
}
