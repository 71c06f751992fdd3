package loader_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
	_ "modernc.org/sqlite" // registers "sqlite"
)

// usersByID is one query for many users. Those that do not exist are not in the map.
func usersByID(ctx context.Context, db *sql.DB, ids []int64) (map[int64]User, error) {
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	marks := strings.Repeat(", ?", len(ids))[2:]
	rows, err := db.QueryContext(ctx, `SELECT id, name FROM users WHERE id IN (`+marks+`)`, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	users := make(map[int64]User)
	for rows.Next() {
		var u User
		if err := rows.Scan(&u.ID, &u.Name); err != nil {
			return nil, err
		}
		users[u.ID] = u
	}
	return users, rows.Err() // without it, a lost connection would say that users do not exist
}

// Three keys that are asked for at about the same time, and one query.
func Example_coalesce() {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // each connection has a memory of its own
	_, err = db.Exec(`CREATE TABLE users (id, name); INSERT INTO users VALUES (1, 'Ada'), (2, 'Grace')`)
	if err != nil {
		panic(err)
	}

	load := loader.Coalesce(func(ctx context.Context, ids []int64) (map[int64]User, error) {
		fmt.Println("one query for", len(ids), "users")
		return usersByID(ctx, db, ids)
	}, 3, time.Second) // a few milliseconds, usually; here the third key ends the wait
	users, err := cache.New("user", load, cache.Options{TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	defer users.Close()

	var answers [3]string
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			user, err := users.Get(context.Background(), int64(i+1))
			answers[i] = fmt.Sprintf("%d: %q, %v", i+1, user.Name, err)
		})
	}
	wg.Wait()
	fmt.Println(strings.Join(answers[:], "\n"))

	// Output:
	// one query for 3 users
	// 1: "Ada", <nil>
	// 2: "Grace", <nil>
	// 3: "", loader: not found
}
