-- renew(token, start, lease): never re-creates what is gone.
local h = read()
if not holds(h, ARGV[3], ARGV[4]) then return {'lost', us, wake()} end
local length = tonumber(ARGV[5])
touch(length)
patch($until, format(&until, ms + length))
return {'held', us, 0}
