-- fail(token, start, backoff, longest, jitter, message): the load failed, and the key is left alone for
-- the back-off. What may still be served stays.
local h = read()
if not holds(h, ARGV[3], ARGV[4]) then return {'refused', us, wake()} end
local failures, pause = backoff(h, ARGV[5], ARGV[6], ARGV[7])
local retry, memory = ms + pause, 2 * pause
if h.kind == 'V' and h.iferror > ms or h.kind == 'N' and h.current then
  touch(math.max(h.iferror - ms, memory))
  patch($retry, format(&retry, retry) .. format(&failures, failures) .. NOLEASE)
else
  touch(1)
  local message = ARGV[8]
  redis.call('SET', key, header('E', {holddown = h.holddown, row = h.row, retry = retry, failures = failures,
    variable = #message}) .. message, 'PX', math.max(memory, h.holddown - ms))
end
return {'failed', us, woken(h), retry, failures}
