package rebuild

import (
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/levee-cache/levee/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(redistest.Main(m, nil)) }

// longEnough bounds waits for what is expected to happen soon.
const longEnough = 20 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

// between checks that got lies in [low, high].
func between[T ~int | ~int64](t *testing.T, what string, got, low, high T) {
	t.Helper()
	if got < low || got > high {
		t.Fatalf("%s: got %v, want %v to %v", what, got, low, high)
	}
}

// inBubble runs f in a bubble that has a server.
func inBubble(t *testing.T, f func(*testing.T, *redistest.BubbleServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, redistest.Bubble(t)) })
}
