-- forget(token, inboxes, counted, fence): lets an id run again whose run has this fence, and is done; of another it tells
-- the fence. So one that arrives late cannot forget a later run. A free lock is left, which knows the run's token.
if done then
  if done ~= tonumber(ARGV[4]) then return {'done', us, done} end
  redis.call('SET', key, MAGIC .. sub(raw, @token) .. 'F' .. NOTOKEN .. format(&fence, done) .. format(&since, ms)
    .. format(&until, ms) .. format(&lease, 0) .. NOBODY, 'PX', RETENTION)
  return {'free', us}
end
local l = read()
if not l then return {'foreign', us} end
if not l.held then return {'gone', us} end
return {'busy', us, l.ends - ms, -1, #l.queue / ENTRY, l.fence, l.since, l.holder}
