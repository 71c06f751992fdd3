-- inspect(token, inboxes, counted): tells about the lock. A script, so that no replica answers.
local l = read()
if not l then return {'foreign', us} end
return {'seen', us, l.held and l.state or 'F', l.fence, l.since, l.ends, #l.queue / ENTRY, l.holder, l.token}
