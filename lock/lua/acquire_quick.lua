-- A lock that is free, and that nobody waits for, is taken without what follows: the functions alone
-- would double the time. Memory that is full may refuse it.
if (ARGV[9] == '0' or us <= tonumber(ARGV[9])) and (not raw or #raw == SIZE and sub(raw, @state) == 'F'
    and sub(raw, @magic) == MAGIC and sub(raw, @released) ~= token and tonumber(sub(raw, @fence), 16)) then
  local before = raw and tonumber(sub(raw, @fence), 16) or 0
  local fence, lease = math.max(before + 1, us), tonumber(ARGV[4])
  redis.call('SET', key, MAGIC .. (raw and sub(raw, @released) or NOTOKEN) .. 'H' .. token .. format(&fence, fence)
    .. format(&since, ms) .. format(&until, ms + lease) .. format(&lease, lease) .. ARGV[5], 'PX', lease + RETENTION)
  return {'acquired', us, fence, ms + lease, 0, ''}
end

