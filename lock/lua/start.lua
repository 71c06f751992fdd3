-- start is acquire, but what is done already is told instead.
if done then return {'done', us, sub(raw, SIZE + 1)} end

