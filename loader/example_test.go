package loader_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/levee-cache/levee/loader"
)

// The row is read only if it has changed since the value that the cache still has.
func ExampleRevalidate() {
	row := struct {
		version uint64
		name    string
	}{1, "Ada"}
	users := loader.Revalidate(func(_ context.Context, id int, previous *loader.Previous[string]) (loader.Result[string], error) {
		if previous != nil && previous.RowVersion == row.version { // SELECT version FROM ...
			return loader.Result[string]{NotModified: true}, nil
		}
		return loader.Result[string]{Value: row.name, RowVersion: row.version, TTL: time.Hour}, nil
	})
	told := func(r loader.Result[string], err error) {
		fmt.Printf("%q, not modified: %v, %v\n", r.Value, r.NotModified, err)
	}
	loader.Call(context.Background(), users, 42, nil, told) // as a cache does
	loader.Call(context.Background(), users, 42, &loader.Previous[string]{Value: "Ada", RowVersion: 1}, told)
	// Output:
	// "Ada", not modified: false, <nil>
	// "", not modified: true, <nil>
}

// Many loads become one query. Who is not in its result does not exist; a key may fail by itself.
func ExampleCoalesce() {
	users := loader.Coalesce(func(_ context.Context, ids []int) (map[int]string, error) { // WHERE id IN (...)
		return map[int]string{1: "Ada", 2: "Grace"}, loader.KeyErrors[int]{4: errors.New("its shard is away")}
	}, 100, 5*time.Millisecond)
	answers := make([]string, 5)
	var all sync.WaitGroup
	for id := 1; id <= 4; id++ {
		all.Go(func() {
			name, err := users.Load(context.Background(), id)
			answers[id] = fmt.Sprintln(id, name, err)
		})
	}
	all.Wait()
	fmt.Print(answers[1], answers[2], answers[3], answers[4])
	// Output:
	// 1 Ada <nil>
	// 2 Grace <nil>
	// 3  loader: not found
	// 4  its shard is away
}
