package main

import (
	"github.com/redis/go-redis/v9"

	"github.com/levee-cache/levee/internal/redistest"
)

// redissonLike sends what Redisson's RLock sends for a lock and an unlock, for the server's time only: its client is Java.
type redissonLike struct {
	stage  *stage
	client *redis.Client
}

var (
	redissonLock = redis.NewScript(`
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])`)
	redissonUnlock = redis.NewScript(`
local val = redis.call('get', KEYS[3])
if val ~= false then return tonumber(val) end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if counter > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[5])
  return 0
end
redis.call('del', KEYS[1])
redis.call(ARGV[4], KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[5])
return 1`)
)

func openRedissonLike(s *stage, srv *redistest.Server) redissonLike {
	return redissonLike{s, srv.Client(s)}
}

func (k redissonLike) cycle() {
	const owner, latch = "0f1c6a3e-9d0a-4a5c-8f6b-8f5a2f6a8c11:1", "redisson_unlock_latch:{y}:4d1f"
	ctx := k.stage.Context()
	if err := redissonLock.Run(ctx, k.client, []string{"y"}, 30000, owner).Err(); err != redis.Nil {
		k.stage.Fatalf("redisson's lock: %v", err)
	}
	k.stage.must(redissonUnlock.Run(ctx, k.client, []string{"y", "redisson_lock__channel:{y}", latch}, 0, 30000, owner, "publish", 13500).Err())
	k.stage.must(k.client.Del(ctx, latch).Err())
}
