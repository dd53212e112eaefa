-- Which session and task a message became; one that has not arrived yet gets a tombstone, and will never start.
local by, gone = unpack(KEYS)
local known = redis.call('HMGET', by, 'session', 'task')
if known[1] then return known end
redis.call('SET', gone, '1', 'PX', KEEP_MS)
return {}
