-- Every script begins with this. KEYS[1] is the lock, ARGV[1] the caller's token, ARGV[2] what the names
-- of inboxes begin with, ARGV[3] '1' where PUBLISH counts every subscriber. The clock is read once.
local key, token = KEYS[1], ARGV[1]
local clock = redis.call('TIME')
local us = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local ms = math.floor(us / 1000)
local raw = redis.call('GET', key)

-- Names of fields that a sign stands before become numbers and formats: see placed in fields.go.
local sub, format = string.sub, string.format

