-- A lock that nobody waits for is given back without what follows. The first write is allowed when memory
-- is full, and the second then is too.
if raw and #raw == SIZE and sub(raw, @token) == token and sub(raw, @magic) == MAGIC and tonumber(sub(raw, @fence), 16) then
  redis.call('PEXPIRE', key, RETENTION)
  redis.call('SETRANGE', key, $released, token .. 'F' .. NOTOKEN)
  return {'released', us, 0}
end

