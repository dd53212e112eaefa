-- CLAIM: take over a run that nobody works on. One of any number of claimers wins.
-- {} {'claimed', fence, input, queued_at, started}
local run, lease, fence, active = unpack(KEYS)
local token, owner, lease_ms, session, floor = unpack(ARGV)

local now = redis.call('HMGET', run, 'input', 'queued_at', 'started', 'fence')
if not now[1] then
  redis.call('ZREM', active, session)
  return {}
end
local holder = redis.call('HMGET', lease, 'token', 'fence')
if holder[1] then
  if holder[1] == token then return {'claimed', holder[2], now[1], now[2], now[3]} end
  return {}
end
local higher = next_fence(fence, math.max(tonumber(floor), tonumber(now[4])))
redis.call('HSET', run, 'token', token, 'owner', owner, 'fence', higher, 'after', '')
redis.call('PEXPIRE', run, KEEP_MS)
set_lease(lease, token, owner, higher, lease_ms)
set_due(active, session, lease_ms)
return {'claimed', higher, now[1], now[2], now[3]}
