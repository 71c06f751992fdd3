-- acquire(token, lease, have, bar, mode, notafter): reports the entry, and leases it where the
-- mode allows. `have` is an identity whose payload need not be sent again, '*' for none at all.
-- A fresh entry whose version is below a bar above zero is leased all the same.
local token, length, have = ARGV[3], tonumber(ARGV[4]), ARGV[5]
local bar, mode, notafter = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
if notafter > 0 and us > notafter then return {'late', us, 0} end
local h = read()

local function answer(status)
  local rest = ''
  if have ~= '*' and (h.kind == 'E' or h.kind == 'V' and h.iferror > ms and h.identity ~= have) then
    rest = redis.call('GETRANGE', key, SIZE, -1)
  end
  return {status, us, 0, redis.call('GETRANGE', key, 0, SIZE - 1), rest}
end

local function take()
  local start = beginning(h)
  local mine = lease(token, start, ms + length, h and h.waiters)
  if not h then
    redis.call('SET', key, header('L', {lease = mine}), 'PX', length)
    h = {kind = 'L'}
  else
    touch(length)
    patch('token', mine)
  end
  return answer('leased')
end

if not h then
  if mode == 'look' then return {'absent', us, 0} end
  return take()
end
if h.leased and h.token == token then return answer('leased') end
if h.kind == 'X' and h.fresh_now then return answer('pass') end
if (h.kind == 'V' or h.kind == 'N') and h.fresh_now and (bar == 0 or h.version >= bar) then return answer('fresh') end
if h.leased then
  if mode == 'wait' and not h.waiters then
    touch(1)
    patch('waiters', '1')
  end
  return answer('held')
end
if h.retry > ms then return answer('backoff') end
if mode == 'look' then return answer('idle') end
return take()
