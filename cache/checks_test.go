package cache

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// isErr fails unless err is want.
func isErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want one that is %v", err, want)
	}
}

// saying fails unless err's text contains all of parts.
func saying(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v does not say %q", err, part)
		}
	}
}

// newCache makes a cache that is closed when the test ends.
func newCache[K comparable, V any](t testing.TB, name string, l loader.Loader[K, V], o Options) *Cache[K, V] {
	t.Helper()
	c, err := New(name, l, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// always loads one value for every key.
func always[K comparable, V any](v V) loader.Loader[K, V] {
	return loader.Func(func(context.Context, K) (V, error) { return v, nil })
}

// minute is enough of Options for most tests.
var minute = Options{TTL: time.Minute}

// entries are the keys of a server but for those that caches have in common.
func entries(b *redistest.BubbleServer) []string {
	return slices.DeleteFunc(b.Mini().Keys(), func(key string) bool { return strings.Contains(key, "!") })
}
