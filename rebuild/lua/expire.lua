-- expire(holddown): what may be served stale is so from now on, for as long as it would have
-- been; anything else is deleted, but for the memory of a failure. The lease goes.
local h = read()
local holddown = later(h, ARGV[3])
if h and h.kind == 'V' and h.iferror > ms then
  touch(holddown - ms)
  local earlier = math.max(0, h.fresh - ms) -- the windows move with the end of freshness
  patch('fresh', hex('fresh', h.fresh - earlier) .. hex('stale', h.stale - earlier)
    .. hex('iferror', h.iferror - earlier) .. hex('holddown', holddown))
  patch('token', NOLEASE)
elseif h and h.kind == 'E' and h.retry > ms then
  touch(holddown - ms)
  patch('holddown', hex('holddown', holddown))
  patch('token', NOLEASE)
else
  drop(holddown, h and h.row)
end
return {'expired', us, woken(h)}
