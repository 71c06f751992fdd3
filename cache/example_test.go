package cache_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/internal/redistest"
	"github.com/levee-cache/levee/loader"
)

// User is a row of the database.
type User struct {
	ID   int64
	Name string
}

// loadUser stands for a query.
func loadUser(_ context.Context, id int64) (User, error) {
	if id != 42 {
		return User{}, loader.ErrNotFound
	}
	return User{ID: id, Name: "Ada"}, nil
}

// The program of the README, on a server of its own.
func Example() {
	server, err := redistest.StartAny(redistest.Options{})
	if err != nil {
		panic(err)
	}
	defer server.Stop()
	addr := server.Addr()

	// README: from here
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()

	users, err := cache.New("user", loader.Func(loadUser), cache.Options{
		Redis:                rdb,
		TTL:                  5 * time.Minute,
		StaleWhileRevalidate: time.Minute,
		StaleIfError:         time.Hour,
	})
	if err != nil {
		panic(err)
	}
	defer users.Close()

	ctx := context.Background()
	user, err := users.Get(ctx, 42) // loads: one query in the whole fleet
	fmt.Println(user.Name, err)

	user, err = users.Get(ctx, 42) // from memory
	fmt.Println(user.Name, err)

	_, err = users.Get(ctx, 43) // remembered too, for NegativeTTL
	fmt.Println(err)

	err = users.Delete(ctx, 42) // after a write: the next Get loads
	fmt.Println(err)
	// README: to here

	// Output:
	// Ada <nil>
	// Ada <nil>
	// loader: not found
	// <nil>
}

// Without Redis the same cache protects one process: this is how code that uses it is tested.
func ExampleNew_withoutRedis() {
	loads := 0
	users, err := cache.New("user", loader.Func(func(_ context.Context, id int64) (User, error) {
		loads++
		return User{ID: id, Name: "Ada"}, nil
	}), cache.Options{TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	defer users.Close()

	for range 3 {
		user, _ := users.Get(context.Background(), 42)
		fmt.Println(user.Name)
	}
	fmt.Println(loads, "load")

	// Output:
	// Ada
	// Ada
	// Ada
	// 1 load
}
