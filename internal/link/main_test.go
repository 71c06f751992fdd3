package link

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/levee-cache/levee/internal/redistest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(redistest.Main(m, nil))
}

// inBubble runs f in a bubble, with a server in it that everybody can reach.
func inBubble(t *testing.T, f func(t *testing.T, b *redistest.BubbleServer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, redistest.Bubble(t)) })
}

// open gives client's link, closed when the test ends.
func open(t *testing.T, client redis.UniversalClient) *Link {
	t.Helper()
	l, err := Open(client)
	must(t, err)
	t.Cleanup(l.Close)
	return l
}

// warm makes a connection, so that what comes later fails as a command and not as a dial.
func warm(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	must(t, client.Ping(t.Context()).Err())
}

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

// saying fails unless err's text contains what.
func saying(t *testing.T, err error, what string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), what) {
		t.Errorf("error %v does not say %q", err, what)
	}
}

// took fails unless exactly d has passed since began, which only a bubble's clock can promise.
func took(t *testing.T, began time.Time, d time.Duration) {
	t.Helper()
	if got := time.Since(began); got != d {
		t.Errorf("took %v, want %v", got, d)
	}
}
