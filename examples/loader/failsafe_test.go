package loader_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/retrypolicy"
	"github.com/failsafe-go/failsafe-go/timeout"
	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
)

// User is a row.
type User struct {
	ID   int64
	Name string
}

// resilient gives a query three tries of a second each, and leaves a database alone for ten
// seconds after five tries in a row have failed. However many callers wait for a key, the tries
// are made once, and all of them together must fit into the cache's LoadTimeout.
func resilient[K comparable, V any](query func(context.Context, K) (V, error)) loader.Loader[K, V] {
	// That a record does not exist is an answer: it is not asked for again, and proves that the
	// database is well.
	failed := func(_ V, err error) bool { return err != nil && !errors.Is(err, loader.ErrNotFound) }

	retry := retrypolicy.NewBuilder[V]().HandleIf(failed).
		WithMaxRetries(2).
		WithBackoff(50*time.Millisecond, time.Second).
		WithJitterFactor(0.25).
		AbortOnErrors(circuitbreaker.ErrOpen).
		ReturnLastFailure(). // callers see the error of the database
		Build()
	breaker := circuitbreaker.NewBuilder[V]().HandleIf(failed).
		WithFailureThreshold(5).
		WithSuccessThreshold(1).
		WithDelay(10 * time.Second).
		Build()

	// The first is the outermost: the breaker counts every try.
	policies := failsafe.With(retry, breaker, timeout.New[V](time.Second))
	return loader.Func(func(ctx context.Context, key K) (V, error) {
		return policies.WithContext(ctx).GetWithExecution(func(try failsafe.Execution[V]) (V, error) {
			return query(try.Context(), key)
		})
	})
}

// database is one that fails as often as it is told to.
type database struct{ failures, queries int }

func (db *database) user(_ context.Context, id int64) (User, error) {
	db.queries++
	switch {
	case db.failures > 0:
		db.failures--
		return User{}, errors.New("connection reset")
	case id != 42:
		return User{}, loader.ErrNotFound
	}
	return User{ID: id, Name: "Ada"}, nil
}

// asked is how many queries there were since it was called last.
func (db *database) asked() int {
	defer func() { db.queries = 0 }()
	return db.queries
}

// Retries, a circuit breaker and a timeout for each try, by failsafe-go, around a load function.
func Example_failsafe() {
	var db database
	users, err := cache.New("user", resilient(db.user), cache.Options{TTL: time.Minute, LoadTimeout: 5 * time.Second})
	if err != nil {
		panic(err)
	}
	defer users.Close()
	ctx := context.Background()

	db.failures = 1
	user, err := users.Get(ctx, 42)
	fmt.Println("A hiccup:", user.Name, err, "- queries:", db.asked())

	for id := range int64(10) {
		_, err = users.Get(ctx, id)
	}
	fmt.Println("Ten that do not exist:", err, "- queries:", db.asked())

	db.failures = 1000
	_, err = users.Get(ctx, 101)
	fmt.Println("An outage:", err, "- queries:", db.asked())
	_, err = users.Get(ctx, 102)
	fmt.Println("It goes on:", err, "- queries:", db.asked())
	_, err = users.Get(ctx, 103)
	fmt.Println("And on:", err, "- queries:", db.asked())

	user, err = users.Get(ctx, 42)
	fmt.Println("What is cached:", user.Name, err, "- queries:", db.asked())

	// Output:
	// A hiccup: Ada <nil> - queries: 2
	// Ten that do not exist: loader: not found - queries: 10
	// An outage: connection reset - queries: 3
	// It goes on: circuit breaker open - queries: 2
	// And on: circuit breaker open - queries: 0
	// What is cached: Ada <nil> - queries: 0
}

func TestAQueryThatHangsIsGivenUpAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		l := resilient(func(ctx context.Context, _ int64) (User, error) {
			if tries++; tries > 1 {
				return User{Name: "Ada"}, nil
			}
			<-ctx.Done()
			return User{}, ctx.Err()
		})
		user, err := l.Load(t.Context(), 42)
		if user.Name != "Ada" || err != nil || tries != 2 {
			t.Errorf("got %v, %v after %d tries", user, err, tries)
		}
	})
}

func TestAfterTenSecondsOneTryClosesTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := database{failures: 5}
		l := resilient(db.user)
		for range 2 {
			_, _ = l.Load(t.Context(), 42)
		}
		if _, err := l.Load(t.Context(), 42); !errors.Is(err, circuitbreaker.ErrOpen) {
			t.Fatalf("after five failures: %v", err)
		}
		time.Sleep(10 * time.Second)
		if user, err := l.Load(t.Context(), 42); user.Name != "Ada" || err != nil {
			t.Errorf("ten seconds later: %v, %v", user, err)
		}
	})
}
