-- commit(token, start, fresh, stale, iferror, row, by, entry, keep, backoff, longest, jitter, holddown): stores
-- the entry, made ready but for its windows, which begin now. A repeated commit is known by its writer
-- and changes nothing. With keep the payload that is there stays, and the entry is a header only.
-- A value without a row version keeps the entry's. An older one is a failure: the key is left alone for the
-- back-off, or where there is nothing to serve meanwhile, loaded without a lease. By is 'load'; 'anew', for
-- a value that a generation has ended, so that its row counts no more; or 'set', whose value no
-- lagging replica can have made: it ends a hold-down.
local token, start, row, by = ARGV[3], ARGV[4], ARGV[8], ARGV[9]
local h = read()
if h and h.writer == token and h.version == tonumber(start) then
  return {'committed', us, 0, h.raw}
end
if not holds(h, token, start) then return {'refused', us, wake()} end
if by ~= 'anew' and row ~= NOROW and h.row > row then
  local failures, pause = backoff(h, ARGV[12], ARGV[13], ARGV[14])
  touch(2 * pause)
  if h.kind == 'V' and h.iferror > ms then
    patch($retry, format(&retry, ms + pause) .. format(&failures, failures) .. NOLEASE)
    return {'older', us, woken(h), 1}
  end
  redis.call('SET', key, header('X', {ends = ms + pause, holddown = h.holddown, row = h.row}), 'PX', math.max(pause, h.holddown - ms, 1))
  return {'older', us, woken(h)}
end
if ARGV[11] == '1' and h.kind ~= 'V' then -- there is nothing to keep
  touch(1)
  patch($token, NOLEASE)
  return {'refused', us, wake()}
end
local holddown = by == 'set' and 0 or math.max(h.holddown, tonumber(ARGV[15]))
local ends = {ms + tonumber(ARGV[5]), ms + tonumber(ARGV[6]), ms + tonumber(ARGV[7])}
for i = 1, 3 do -- a load that began within the hold-down may have read a replica that lags
  if holddown * 1000 > h.start then ends[i] = math.min(ends[i], holddown) end
end
local lifetime = math.max(ends[1], ends[3], holddown, ms + 1) - ms
if ARGV[11] == '1' then
  redis.call('PEXPIRE', key, lifetime)
  patch(0, ARGV[10])
  patch($codec, sub(h.raw, @codec) .. sub(h.raw, @compression))
  patch($variable, sub(h.raw, @variable) .. sub(h.raw, @body))
else
  redis.call('SET', key, ARGV[10], 'PX', lifetime)
end
if by ~= 'anew' and row == NOROW and h.row ~= NOROW and sub(ARGV[10], @kind) == 'V' then patch($row, h.row) end
patch($fresh, format(&fresh, ends[1]) .. format(&stale, ends[2]) .. format(&iferror, ends[3]) .. format(&holddown, holddown))
return {'committed', us, woken(h), redis.call('GETRANGE', key, 0, SIZE - 1)}
