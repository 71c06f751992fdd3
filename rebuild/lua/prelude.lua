-- Every script begins with this. KEYS[1] is the entry, ARGV[1] the hash of its key's text,
-- ARGV[2] the channel of its wake-ups. The server's clock is read once.
local key, hash, channel = KEYS[1], ARGV[1], ARGV[2]
local clock = redis.call('TIME')
local us = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local ms = math.floor(us / 1000)
local AHEAD = 1000000 -- an instant further in the future was written before the clock stepped back

-- Names of fields that a sign stands before become numbers and formats: see placed in fields.go.
local sub, format = string.sub, string.format

-- read returns the entry's header, or nil and what stands there instead: for what is missing,
-- cut, foreign or another key's.
local function read()
  local raw = redis.call('GETRANGE', key, 0, SIZE - 1)
  if #raw ~= SIZE or sub(raw, @magic) ~= MAGIC or sub(raw, @hash) ~= hash then return nil, raw end
  local ok = true
  local function number(from, to)
    local n = tonumber(sub(raw, from, to), 16)
    ok = ok and n
    return n
  end
  local h = {raw = raw, kind = sub(raw, @kind), writer = sub(raw, @writer), row = sub(raw, @row),
    version = number(@version), fresh = number(@fresh), stale = number(@stale), iferror = number(@iferror),
    holddown = number(@holddown), retry = number(@retry), failures = number(@failures),
    token = sub(raw, @token), start = number(@start), ends = number(@until), waiters = sub(raw, @waiters) == '1',
    variable = number(@variable), body = number(@body)}
  if not ok or redis.call('STRLEN', key) ~= SIZE + h.variable + h.body then return nil, raw end
  h.future = h.version > us + AHEAD
  h.current = h.fresh > ms and not h.future
  h.leased = h.token ~= NOTOKEN and h.ends > ms and h.start <= us + AHEAD
  return h
end

-- holds tells whether the lease (token, start) is still in the entry, run out or not.
local function holds(h, token, start)
  return h and h.token == token and h.start == tonumber(start)
end

-- wake publishes the wake-up. A missing right on the channel must not leave a script half
-- done, so it only shows in the answer: 1 sent, -1 refused.
local function wake()
  local answer = redis.pcall('PUBLISH', channel, '')
  if type(answer) == 'table' and answer.err then return -1 end
  return 1
end

-- woken wakes those who wait for the lease in h to end, if somebody does.
local function woken(h)
  if h and h.waiters then return wake() end
  return 0
end

-- touch makes the entry live for at least n ms more. It comes before any other write: it is
-- allowed when memory is full, and the writes after it in the same script then are too.
local function touch(n)
  redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), n, 1))
end

local function patch(at, text) redis.call('SETRANGE', key, at, text) end

local function lease(token, start, ends, waiters)
  return token .. format(&start, start) .. format(&until, ends) .. (waiters and '1' or '0')
end

local NOLEASE = lease(NOTOKEN, 0, 0, false)

-- header composes a header that has no value and nothing behind it.
local function header(kind, w)
  local ends = w.ends or 0
  return MAGIC .. kind .. '--' .. format(&version, 0) .. NOTOKEN .. (w.row or NOROW) .. hash .. format(&cost, 0)
    .. format(&fresh, ends) .. format(&stale, ends) .. format(&iferror, ends) .. format(&holddown, w.holddown or 0)
    .. format(&retry, w.retry or 0) .. format(&failures, w.failures or 0)
    .. (w.lease or NOLEASE) .. format(&variable, w.variable or 0) .. format(&body, 0)
end

-- beginning is the start of a new lease: now, or above what the entry remembers of earlier
-- ones, unless that lies ahead since the clock stepped back.
local function beginning(h)
  local start = us
  for _, earlier in ipairs({h and h.version or 0, h and h.start or 0}) do
    if earlier <= us + AHEAD then start = math.max(start, earlier + 1) end
  end
  return start
end

-- backoff counts one more failure. The pause after it doubles with each in a row up to the longest;
-- jitter is the share of it, in thousandths, that this one takes.
local function backoff(h, first, longest, jitter)
  local failures = math.min(h.failures + 1, 255)
  local pause = math.min(tonumber(first) * 2 ^ math.min(failures - 1, 30), tonumber(longest))
  return failures, math.max(1, math.floor(pause * tonumber(jitter) / 1000))
end

-- later is the hold-down to keep: the later of h's and one that begins now.
local function later(h, duration)
  local ends = 0
  if tonumber(duration) > 0 then ends = ms + tonumber(duration) end
  return math.max(ends, h and h.holddown or 0)
end

-- drop removes the entry, or leaves a placeholder as long as the hold-down.
local function drop(holddown, row)
  if holddown <= ms then
    redis.call('DEL', key)
    return
  end
  touch(1)
  redis.call('SET', key, header('L', {holddown = holddown, row = row}), 'PX', holddown - ms)
end
