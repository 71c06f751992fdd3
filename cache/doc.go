// Package cache is a read-through cache that a stampede does not get through. After a hot key
// expires one instance in the fleet asks the database and fills the cache; the others serve
// the old value at once, or wait a moment for the new one.
//
//	users, err := cache.New("user", loader.Func(db.User), cache.Options{
//		Redis:                rdb,
//		TTL:                  5 * time.Minute,
//		StaleWhileRevalidate: time.Minute,
//		StaleIfError:         time.Hour,
//	})
//	defer users.Close()
//
//	u, err := users.Get(ctx, 42)
//
// Values live in this process, decoded, and in Redis, encoded. Both are optional: without
// Redis the same cache protects one process, and while Redis is away it goes on as such. The
// promises are listed in the README and tested one by one; docs/protocol.md tells how they
// are kept.
package cache
