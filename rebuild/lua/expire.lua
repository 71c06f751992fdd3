-- expire(holddown): what may be served stale is so from now on, for as long as it would have
-- been; anything else is deleted, but for the memory of a failure. The lease goes.
local h = read()
local holddown = later(h, ARGV[3])
local earlier = h and math.max(0, h.fresh - ms) or 0 -- the windows move with the end of freshness
if h and h.kind == 'V' and h.iferror - earlier > ms then
  if h.failures > 0 then
    touch(holddown - ms) -- the count of failures lives as long as it did
  else
    redis.call('PEXPIRE', key, math.max(h.iferror - earlier, holddown) - ms)
  end
  patch($fresh, format(&fresh, h.fresh - earlier) .. format(&stale, h.stale - earlier)
    .. format(&iferror, h.iferror - earlier) .. format(&holddown, holddown))
  patch($token, NOLEASE)
elseif h and h.kind == 'E' and h.retry > ms then
  touch(holddown - ms)
  patch($holddown, format(&holddown, holddown))
  patch($token, NOLEASE)
else
  drop(holddown, h and h.row)
end
return {'expired', us, woken(h)}
