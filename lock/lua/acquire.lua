-- acquire(token, inboxes, counted, lease, holder, inbox, alive, barge, notafter): takes a lock that is free,
-- unless somebody waits for it who was there before; then it goes to him. With alive above 0 the caller
-- waits too: its entry is put at the end of the queue, or refreshed where it stands.
local lease, holder, inbox = tonumber(ARGV[4]), ARGV[5], ARGV[6]
local life, barge, notafter = tonumber(ARGV[7]), ARGV[8] == '1', tonumber(ARGV[9])
if notafter > 0 and us > notafter then return {'late', us} end
local l = read()
if not l then return {'foreign', us} end

if l.held and l.token == token then -- an answer was lost, or a grant was not heard of
  prolong(l, lease)
  return {'acquired', us, l.fence, l.ends, 0, ''}
end
if l.released == token then return {'abandoned', us} end

if not l.held then
  local lost, before = l.state == 'H' and 1 or 0, l.holder
  if barge or not grant(l) then
    local at = place(l.queue, token)
    if at then l.queue = without(l.queue, at) end
    own(l, 'H', token, lease, holder)
    return {'acquired', us, l.fence, l.ends, lost, lost == 1 and before or ''}
  end
elseif l.stepped then
  lasts(l)
  patch($until, format(&until, l.ends))
end

local at = place(l.queue, token)
if life > 0 then
  local entry = inbox .. format(&alive, ms + life)
  if at then
    lasts(l)
    patch(SIZE + at * ENTRY + $inbox, entry)
  elseif #l.queue < CAP * ENTRY then
    lasts(l)
    redis.call('APPEND', key, token .. entry .. holder)
    at = #l.queue / ENTRY
    l.queue = l.queue .. token .. entry .. holder
  end
end
return {'busy', us, l.ends - ms, at or -1, #l.queue / ENTRY, l.fence, l.since, l.holder}
