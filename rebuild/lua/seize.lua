-- seize(token, lease, row, holddown, notafter): the first step of Set. A delete that leaves the
-- caller's own lease; past notafter it only deletes. A row version below the entry's changes
-- nothing. The waiters go on waiting, for the commit.
local token, length, row, notafter = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[7])
local h = read()
if h and h.row > row and row ~= NOROW then return {'older', us, 0} end
local holddown = later(h, ARGV[6])
if notafter > 0 and us > notafter then
  drop(holddown, h and h.row)
  return {'late', us, woken(h)}
end
if h and h.leased and h.token == token then return {'seized', us, 0, h.start} end
local start = beginning(h)
if h and h.row > row then row = h.row end
touch(1)
redis.call('SET', key, header('L', {holddown = holddown, row = row,
  lease = lease(token, start, ms + length, h and h.waiters)}), 'PX', math.max(length, holddown - ms))
return {'seized', us, 0, start}
