-- commit(token, start, fresh, stale, iferror, row, setter, entry): stores the entry, made ready
-- but for its windows, which begin now. A repeated commit is known by its writer and changes
-- nothing. A load without a row version keeps the entry's. Only a setter's value, which no lagging replica can have made, ends a hold-down.
local token, start, row, setter = ARGV[3], ARGV[4], ARGV[8], ARGV[9] == '1'
local h = read()
if h and h.writer == token and h.version == tonumber(start) then
  return {'committed', us, 0, h.raw}
end
if not holds(h, token, start) then return {'refused', us, wake()} end
if row ~= NOROW and h.row > row then
  touch(1)
  patch($token, NOLEASE)
  return {'older', us, woken(h)}
end
local holddown = setter and 0 or h.holddown
local ends = {ms + tonumber(ARGV[5]), ms + tonumber(ARGV[6]), ms + tonumber(ARGV[7])}
for i = 1, 3 do
  if holddown > ms then ends[i] = math.min(ends[i], holddown) end
end
redis.call('SET', key, ARGV[10], 'PX', math.max(ends[1], ends[3], holddown) - ms)
if row == NOROW and h.row ~= NOROW then patch($row, h.row) end
patch($fresh, format(&fresh, ends[1]) .. format(&stale, ends[2]) .. format(&iferror, ends[3]) .. format(&holddown, holddown))
return {'committed', us, woken(h), redis.call('GETRANGE', key, 0, SIZE - 1)}
