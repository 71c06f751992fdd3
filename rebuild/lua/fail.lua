-- fail(token, start, backoff, longest, jitter, message): the load failed. The back-off doubles
-- with each failure in a row up to the longest; jitter is the share of it, in thousandths, that
-- this one takes. What may still be served stays.
local h = read()
if not holds(h, ARGV[3], ARGV[4]) then return {'refused', us, wake()} end
local failures = math.min(h.failures + 1, 255)
local pause = math.min(tonumber(ARGV[5]) * 2 ^ math.min(failures - 1, 30), tonumber(ARGV[6]))
pause = math.max(1, math.floor(pause * tonumber(ARGV[7]) / 1000))
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
