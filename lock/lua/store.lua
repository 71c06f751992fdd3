-- store(token, inboxes, counted, window, result): puts the result of a run where its lock is, for the window, and makes all
-- who wait ask for it. It is refused if the lock is not the run's own any more. One whose lease has ended is, until somebody
-- else gets it: nobody has run since. Storing again is no error.
local window, result = tonumber(ARGV[4]), ARGV[5]
if done then
  if sub(raw, @token) == token then return {'done', us} end
  return {'lost', us, 'taken', done, sub(raw, @holder)}
end
local l = read()
if not l then return {'lost', us, 'foreign', 0, ''} end
if l.token ~= token then return lost(l) end
lasts(l)
redis.call('SET', key, DONE .. l.released .. 'D' .. token .. format(&fence, l.fence) .. format(&since, l.since)
  .. format(&until, ms + window) .. format(&lease, l.lease) .. l.holder .. result, 'PX', window)
for at = 1, #l.queue, ENTRY do
  local entry = sub(l.queue, at, at + ENTRY - 1)
  local inbox = sub(entry, @inbox)
  if inbox ~= NOTOKEN and lives(entry) then -- a lease that has ended is not begun: they ask
    redis.pcall('PUBLISH', inboxes .. inbox, sub(entry, @waiter) .. format(&fence, l.fence) .. format(&until, ms) .. key)
  end
end
return {'done', us}
