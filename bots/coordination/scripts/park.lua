-- PARK: the run waits for a person. Nobody owns it and no sweeper looks for it, but it still keeps the session busy. 1 or 0
local run, lease, active = unpack(KEYS)
local token, session = unpack(ARGV)

if redis.call('HGET', run, 'token') ~= token then return 0 end
-- Without a token a late RENEW of the former owner finds nothing to take back.
redis.call('HSET', run, 'token', '')
if redis.call('HGET', lease, 'token') == token then redis.call('DEL', lease) end
redis.call('ZREM', active, session)
return 1
