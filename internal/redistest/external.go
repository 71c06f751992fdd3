package redistest

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// claimLife is how long a database stays claimed by a test that died.
const claimLife = 10 * time.Minute

// external is one database of a server that is not ours. Test binaries run side
// by side, so each use claims a database of its own through a key in database
// 0, and takes only one that is empty: nobody's data is ever flushed.
type external struct {
	addr  string
	db    int
	token string
}

func claimDatabase(addr string) (*Server, error) {
	inf, err := serverInfo(addr)
	if err != nil {
		return nil, fmt.Errorf("redistest: server at REDIS_ADDR: %w", err)
	}
	e := &external{addr: addr, token: rand.Text()}
	var claimed bool
	poll(time.Minute, func() bool {
		claimed, err = e.claim(context.Background())
		return claimed || err != nil
	})
	if err == nil && !claimed {
		err = fmt.Errorf("redistest: %s has no empty database from 1 on", addr)
	}
	if err != nil {
		return nil, err
	}
	return &Server{addr: addr, kind: inf.kind(inf.program()) + " at REDIS_ADDR", db: e.db, real: true, host: e}, nil
}

// claim tries every database once.
func (e *external) claim(ctx context.Context) (bool, error) {
	for db := 1; ; db++ {
		ok, err := e.claimOne(ctx, db)
		if redis.HasErrorPrefix(err, "ERR DB index is out of range") {
			return false, nil
		}
		if ok || err != nil {
			return ok, err
		}
	}
}

func (e *external) claimOne(ctx context.Context, db int) (bool, error) {
	c := redis.NewClient(&redis.Options{Addr: e.addr, DB: db})
	defer c.Close()
	if n, err := c.DBSize(ctx).Result(); n > 0 || err != nil {
		return false, err
	}
	zero := redis.NewClient(&redis.Options{Addr: e.addr})
	defer zero.Close()
	switch ok, err := zero.SetNX(ctx, claimKey(db), e.token, claimLife).Result(); {
	case err != nil || !ok:
		return false, err
	}
	// Somebody may have claimed, filled and released it since it was counted.
	if n, err := c.DBSize(ctx).Result(); n > 0 || err != nil {
		return false, zero.Del(ctx, claimKey(db)).Err()
	}
	e.db = db
	return true, nil
}

func claimKey(db int) string { return fmt.Sprintf("levee-redistest-claim-%d", db) }

func (e *external) pid() int { return 0 }

// stop empties the database and gives it back.
func (e *external) stop() error {
	ctx := context.Background()
	zero := redis.NewClient(&redis.Options{Addr: e.addr})
	defer zero.Close()
	if owner, _ := zero.Get(ctx, claimKey(e.db)).Result(); owner != e.token {
		return nil
	}
	if err := flush(ctx, e.addr, e.db); err != nil {
		return err
	}
	return zero.Del(ctx, claimKey(e.db)).Err()
}

func (e *external) kill() error    { return ErrUnsupported }
func (e *external) pause() error   { return ErrUnsupported }
func (e *external) resume() error  { return ErrUnsupported }
func (e *external) restart() error { return ErrUnsupported }

func flush(ctx context.Context, addr string, db int) error {
	c := redis.NewClient(&redis.Options{Addr: addr, DB: db})
	defer c.Close()
	return c.FlushDB(ctx).Err()
}

func mustBeReal() bool { return os.Getenv("LEVEE_REQUIRE_REDIS") == "1" }
