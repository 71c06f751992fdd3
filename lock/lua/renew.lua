-- renew(token, inboxes, counted, lease): begins the lease anew, also one that was granted. It never
-- re-creates what is gone, and says why it is.
local lease = tonumber(ARGV[4])
local l = read()
if not l then return {'lost', us, 'foreign', 0, ''} end
if l.held and l.token == token then
  prolong(l, lease)
  return {'held', us, l.ends}
end
return lost(l)
