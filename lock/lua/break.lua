-- break(token, inboxes, counted, fence): takes the lock from whoever holds it with this fence.
local l = read()
if not l then return {'foreign', us} end
if l.absent or l.state == 'F' then return {'gone', us} end
if l.fence ~= tonumber(ARGV[4]) then return {'other', us} end
return {'broken', us, free(l)}
