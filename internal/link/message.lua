-- message(life, length, sender, tag, then topic, kind, text and number of each): KEYS[1] is
-- the stream. A repeated call sends its messages twice, which is harmless.
local key, life, tag = KEYS[1], tonumber(ARGV[1]), ARGV[4]

-- position names the end of the stream, by the last message's tag too: a stream that is lost and
-- begun anew within a millisecond gives the same id again.
local function position()
  -- This fails where the key is of another type, before anything of it is touched.
  local last = redis.call('XREVRANGE', key, '+', '-', 'COUNT', 1)[1]
  if not last then return '0-0/' end
  for i = 1, #last[2], 2 do
    if last[2][i] == 'u' then return last[1] .. '/' .. last[2][i + 1] end
  end
  return last[1] .. '/'
end

-- The longest lifetime that any sender gives the stream holds. It is set first: that is allowed
-- when memory is full, and the writes after it in the same script then are too.
local function touch()
  redis.call('PEXPIRE', key, string.format('%.0f', math.max(life, redis.call('PTTL', key))))
end

local at = position()
touch()
local sent = {}
for i = 5, #ARGV, 4 do
  local id = redis.call('XADD', key, 'MAXLEN', '~', ARGV[2], '*', 's', ARGV[3], 'u', tag,
    't', ARGV[i], 'k', ARGV[i + 1], 'x', ARGV[i + 2], 'n', ARGV[i + 3], 'p', at)
  at = id .. '/' .. tag
  sent[#sent + 1] = id
end
touch()
return sent
