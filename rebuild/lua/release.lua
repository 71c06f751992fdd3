-- release(token, start, except): gives the lease back; start 0 means any, but not the one that
-- except names. A placeholder that is there for nothing else goes too.
local h = read()
local start, except = tonumber(ARGV[4]), tonumber(ARGV[5])
if not h or h.token ~= ARGV[3] or h.start == except or start ~= 0 and h.start ~= start then
  return {'gone', us, 0}
end
if h.kind == 'L' then
  drop(h.holddown, h.row)
else
  touch(1)
  patch($token, NOLEASE)
end
return {'released', us, woken(h)}
