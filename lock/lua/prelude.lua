-- What the scripts share, where the short ways are not enough.
local inboxes, counted = ARGV[2], ARGV[3] == '1'

-- read returns the lock. Where there is none it returns one that is free, with absent set; of
-- what is no lock it returns nil.
local function read()
  if not raw then
    return {absent = true, released = NOTOKEN, state = 'F', token = NOTOKEN, fence = 0, since = 0, ends = 0,
      lease = 0, holder = NOBODY, queue = ''}
  end
  if #raw < SIZE or (#raw - SIZE) % ENTRY ~= 0 or sub(raw, @magic) ~= MAGIC then return nil end
  local fence, since = tonumber(sub(raw, @fence), 16), tonumber(sub(raw, @since), 16)
  local ends, lease = tonumber(sub(raw, @until), 16), tonumber(sub(raw, @lease), 16)
  if not (fence and since and ends and lease) then return nil end
  local l = {released = sub(raw, @released), state = sub(raw, @state), token = sub(raw, @token), fence = fence,
    since = since, ends = ends, lease = lease, holder = sub(raw, @holder), queue = sub(raw, SIZE + 1)}
  if ends - ms > lease then -- the clock has stepped back
    l.ends, l.stepped = ms + lease, true
  end
  l.held = l.state ~= 'F' and l.ends > ms
  return l
end

-- lasts gives the key its lifetime: that of the lease, and then the memory's. It comes before any other
-- write: it is allowed when memory is full, and the writes after it in the same script then are too.
local function lifetime(l)
  return (l.state == 'F' and 0 or math.max(l.ends - ms, 0)) + RETENTION
end
local function lasts(l) redis.call('PEXPIRE', key, lifetime(l)) end

local function patch(at, text) redis.call('SETRANGE', key, at, text) end

-- write writes the whole lock.
local function write(l)
  if not l.absent then lasts(l) end
  redis.call('SET', key, MAGIC .. l.released .. l.state .. l.token .. format(&fence, l.fence) .. format(&since, l.since)
    .. format(&until, l.ends) .. format(&lease, l.lease) .. l.holder .. l.queue, 'PX', lifetime(l))
  l.absent = nil
end

-- prolong begins the lease of the one who has it anew.
local function prolong(l, lease)
  l.ends, l.lease = ms + lease, lease
  lasts(l)
  if l.state ~= 'H' then patch($state, 'H') end
  patch($until, format(&until, l.ends) .. format(&lease, lease))
end

-- own makes a lock that is free somebody's.
local function own(l, state, owner, lease, holder)
  l.state, l.token, l.holder, l.held = state, owner, holder, true
  l.fence, l.since, l.ends, l.lease = math.max(l.fence + 1, us), ms, ms + lease, lease
  write(l)
end

-- lost answers one who does not have the lock any more.
local function lost(l)
  local why = 'taken'
  if l.absent then why = 'gone'
  elseif l.token == token then why = 'expired'
  elseif l.released == token then why = 'broken'
  elseif l.state == 'F' then why = 'gone' end
  return {'lost', us, why, l.fence, l.holder}
end

-- place finds a token in the queue: 0 is the head.
local function place(queue, waiter)
  local from = 1
  while true do
    local at = string.find(queue, waiter, from, true)
    if not at then return nil end
    if (at - 1) % ENTRY == 0 then return (at - 1) / ENTRY end
    from = at + 1
  end
end

-- without is the queue with the entry at a place left out.
local function without(queue, at)
  return sub(queue, 1, at * ENTRY) .. sub(queue, (at + 1) * ENTRY + 1)
end

-- lives tells whether an entry was refreshed lately. One that lies further ahead than any refresh
-- would put it is of before a step back of the clock.
local function lives(entry)
  local left = (tonumber(sub(entry, @alive), 16) or 0) - ms
  return left > 0 and left <= ALIVE
end

-- grant gives a lock that is free to the first in the queue who lives, and tells it so; it stops at
-- the caller's own entry. One whose inbox nobody listens to is gone. A missing right on the channel must
-- not leave a script half done. It returns nil if there was nobody.
local function grant(l)
  while #l.queue > 0 and sub(l.queue, @waiter) ~= token do
    local head = sub(l.queue, 1, ENTRY)
    l.queue = sub(l.queue, ENTRY + 1)
    if lives(head) then
      own(l, 'G', sub(head, @waiter), CLAIM, sub(head, @name))
      local inbox = sub(head, @inbox)
      if inbox == NOTOKEN then return true end
      local heard = redis.pcall('PUBLISH', inboxes .. inbox,
        l.token .. format(&fence, l.fence) .. format(&until, l.ends) .. key)
      if not counted or heard ~= 0 then return true end
    end
  end
  return nil
end

-- free ends a lease and passes the lock on. Where there is no queue, on the server either, a patch is enough.
local function free(l, cut)
  local whole = cut or #l.queue > 0
  l.released = l.token
  if grant(l) then return 1 end
  l.state, l.token, l.held = 'F', NOTOKEN, false
  if whole then
    write(l)
  else
    lasts(l)
    patch($released, l.released .. 'F' .. NOTOKEN)
  end
  return 0
end
