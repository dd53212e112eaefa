-- Did this user say stop here within the last minute? Marks it; the call's own repeat hears the same. 1 or 0
local mark = KEYS[1]
local token = ARGV[1]
local last = redis.call('HMGET', mark, 'token', 'repeated')
if last[1] == token then return tonumber(last[2]) end
local repeated = last[1] and 1 or 0
redis.call('HSET', mark, 'token', token, 'repeated', repeated)
redis.call('PEXPIRE', mark, MINUTE_MS)
return repeated
