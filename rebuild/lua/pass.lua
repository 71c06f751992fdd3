-- pass(token, start, duration): the value may not be stored. For so long nodes load it without
-- a lease; an old value is dropped.
local h = read()
if not holds(h, ARGV[3], ARGV[4]) then return {'refused', us, wake()} end
local ends = ms + tonumber(ARGV[5])
touch(1)
redis.call('SET', key, header('X', {ends = ends, holddown = h.holddown, row = h.row}),
  'PX', math.max(ends, h.holddown) - ms)
return {'passed', us, woken(h)}
