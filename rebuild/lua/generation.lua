-- generation(life, change): the generation of a namespace or tag. It is read, or with change 'hard' or
-- 'soft' begun anew. A missing one is set to now and matches nothing. Never a counter: one that was lost
-- would begin again at 1, and bring back what it had ended. A third part tells whether it has ever changed.
local key, life, change = KEYS[1], tonumber(ARGV[1]), ARGV[2]
local clock = redis.call('TIME')
local us = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
if change ~= '' or redis.call('PTTL', key) < life * 3 / 4 then -- not each time: who tracks the key is told of it
  redis.call('PEXPIRE', key, life) -- first: the write below is then allowed when memory is full
end
local hard, soft, born = string.match(redis.call('GET', key) or '', '^(%x+) (%x+) ([01])$')
local new = not hard
hard, soft, born = tonumber(hard or us, hard and 16 or 10), tonumber(soft or us, soft and 16 or 10), born ~= '0'
if change == 'hard' then hard, born = math.max(hard + 1, us), false end
if change == 'soft' then soft, born = math.max(soft + 1, us), false end
if new or change ~= '' then
  redis.call('SET', key, string.format('%013x %013x %d', hard, soft, born and 1 or 0), 'PX', life)
end
return {us, hard, soft, born and 1 or 0}
