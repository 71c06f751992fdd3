-- What a Once has run begins unlike a lock, so that no script of locks touches it: the same fields, the token and the
-- fence those of the run, and its result where the queue was.
local done = raw and #raw > SIZE and sub(raw, @magic) == DONE and tonumber(sub(raw, @fence), 16)

