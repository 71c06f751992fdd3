-- delete(holddown): the entry goes, and with it any lease on it.
local h = read()
drop(later(h, ARGV[3]), h and h.row)
return {'deleted', us, woken(h)}
