-- acquire(token, lease, have, bar, mode, notafter): reports the entry, and leases it where the
-- mode allows. `have` is an identity whose payload need not be sent again.
-- A fresh entry whose version is below a bar above zero is leased all the same.
local token, length, have = ARGV[3], tonumber(ARGV[4]), ARGV[5]
local bar, mode, notafter = tonumber(ARGV[6]), ARGV[7], tonumber(ARGV[8])
if notafter > 0 and us > notafter then return {'late', us, 0} end
local h, other = read()

local function answer(status, changed)
  local head, rest = h.raw, ''
  if changed then head = redis.call('GETRANGE', key, 0, SIZE - 1) end
  if h.kind == 'E' or (h.kind == 'N' or h.kind == 'V' and h.iferror > ms) and have ~= sub(head, @version) .. h.writer then
    rest = redis.call('GETRANGE', key, SIZE, -1)
  end
  return {status, us, 0, head, rest}
end

local function take()
  local start = beginning(h)
  local mine = lease(token, start, ms + length, h and h.waiters)
  if not h then
    local head = header('L', {lease = mine})
    redis.call('SET', key, head, 'PX', length)
    return {'leased', us, 0, head, ''}
  end
  touch(length)
  patch($token, mine)
  return answer('leased', true)
end

if not h then
  if mode ~= 'try' then return {other == '' and 'absent' or 'unreadable', us, 0} end
  return take()
end
if h.leased and h.token == token then return answer('leased') end
if h.kind == 'X' and h.current then return answer('pass') end
if (h.kind == 'V' or h.kind == 'N') and h.current and (bar == 0 or h.version >= bar) then return answer('fresh') end
if h.leased then
  if mode == 'wait' and not h.waiters then
    touch(1)
    patch($waiters, '1')
    return answer('held', true)
  end
  return answer('held')
end
if h.retry > ms then return answer('backoff') end
if mode ~= 'try' then return answer('idle') end
return take()
