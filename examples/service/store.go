package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/levee-cache/levee/cache"
	"github.com/levee-cache/levee/loader"
	"github.com/redis/go-redis/v9"
)

// User is a row, and what is cached of it.
type User struct {
	ID      int64  `json:"id"`
	Name    string `json:"name"`
	Version int64  `json:"version"` // grows with each write
}

// Users is the data-access layer of the users. Nobody else knows of the database or the cache.
type Users struct {
	db            *sql.DB
	cache         *cache.Cache[int64, User]
	reads, writes atomic.Int64 // queries
	slowest       longest      // read
}

// NewUsers reads through rdb; nil caches in this process only.
func NewUsers(db *sql.DB, rdb redis.UniversalClient, ttl time.Duration) (*Users, error) {
	s := &Users{db: db}
	var err error
	s.cache, err = cache.New("user", loader.Func(s.load), cache.Options{
		Redis:                rdb,
		TTL:                  ttl,
		StaleWhileRevalidate: ttl / 2,  // served at once while one instance asks the database
		StaleIfError:         10 * ttl, // served while the database is down
		Logger:               slog.Default(),
	})
	return s, err
}

// load is the query that the cache saves.
func (s *Users) load(ctx context.Context, id int64) (User, error) {
	s.reads.Add(1)
	defer s.slowest.since(time.Now())
	u := User{ID: id}
	err := s.db.QueryRowContext(ctx, `SELECT name, version FROM users WHERE id = $1`, id).Scan(&u.Name, &u.Version)
	if errors.Is(err, sql.ErrNoRows) {
		return User{}, cache.ErrNotFound // remembered, too
	}
	return u, err
}

// Get returns a user, and where from. [cache.ErrNotFound] says that there is none.
func (s *Users) Get(ctx context.Context, id int64) (cache.Entry[User], error) {
	return s.cache.GetEntry(ctx, id)
}

// Put creates or renames a user. With a [*cache.InvalidationError] it is done, but other
// instances may show the old name for a while.
func (s *Users) Put(ctx context.Context, id int64, name string) (User, error) {
	s.writes.Add(1)
	u := User{ID: id, Name: name}
	err := s.db.QueryRowContext(ctx, `
		INSERT INTO users (id, name, version) VALUES ($1, $2, 1)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, version = users.version + 1
		RETURNING version`, id, name).Scan(&u.Version)
	// After an error, too, and whether or not the client still waits: a write whose answer was
	// lost may have been made.
	invalidated := s.cache.Delete(context.WithoutCancel(ctx), id)
	if err != nil {
		return User{}, err
	}
	return u, invalidated
}

// Shutdown waits for loads that are running, and closes the cache.
func (s *Users) Shutdown(ctx context.Context) error { return s.cache.Shutdown(ctx) }

// Close closes the cache at once. Closing twice is harmless.
func (s *Users) Close() error { return s.cache.Close() }
