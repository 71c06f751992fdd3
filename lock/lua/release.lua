-- release(token, inboxes, counted): gives the lock back, or the place in the queue, and passes the lock on.
-- Giving back again is not an error.
local l = read()
if not l then return {'foreign', us} end
local at = place(l.queue, token)
if at then l.queue = without(l.queue, at) end
if l.token == token then return {'released', us, free(l, at)} end
local again = l.released == token
if at then write(l) end
return {again and 'released' or at and 'left' or 'gone', us, 0}
