-- The model has been asked: whoever claims this run later must not simply start it again. 1 or 0
local run = KEYS[1]
if redis.call('HGET', run, 'token') ~= ARGV[1] then return 0 end
redis.call('HSET', run, 'started', '1')
return 1
