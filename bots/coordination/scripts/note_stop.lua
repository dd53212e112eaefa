-- Note a stop word of this user; answers when the one before was said (ms), "0" when none was within a minute.
-- The call's own repeat hears the same.
local mark = KEYS[1]
local token = ARGV[1]
local last = redis.call('HMGET', mark, 'token', 'at', 'before')
if last[1] == token then return last[3] end
local before = last[2] or '0'
redis.call('HSET', mark, 'token', token, 'at', text(now_ms()), 'before', before)
redis.call('PEXPIRE', mark, MINUTE_MS)
return before
