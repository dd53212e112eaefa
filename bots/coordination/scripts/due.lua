-- Is the session's run without an owner? The index may be stale both ways; here it is put right. 1 or 0
local run, lease, active = unpack(KEYS)
local session = ARGV[1]
if redis.call('EXISTS', run) == 0 then
  redis.call('ZREM', active, session)
  return 0
end
local left = redis.call('PTTL', lease)
if left > 0 then
  set_due(active, session, left)
  return 0
end
return 1
