-- RENEW: keep the lease, take it back when nobody else had it meanwhile, and hear about a cancel.
-- {'renewed'} {'renewed', by, reason} {'lost'} {'gone'}: repeat with the input, then the run is written anew.
local lease, run, cancel, fence, active, seen, by = unpack(KEYS)
local token, mine, task, owner, lease_ms, session, input, queued_at, started, message, deduped = unpack(ARGV)

local holder = redis.call('HGET', lease, 'token')
if holder and holder ~= token then return {'lost'} end

if not holder then
  local now = redis.call('HMGET', run, 'task', 'token')
  if now[1] then
    -- Expired, but nobody has claimed it: the run still carries our token.
    if now[2] ~= token then return {'lost'} end
  else
    -- No run at all: an empty restart, unless somebody finished it. FINISH leaves a higher fence behind to tell.
    if tonumber(redis.call('GET', fence) or '0') > tonumber(mine) then return {'lost'} end
    if input == '' then return {'gone'} end
    redis.call('HSET', run, 'task', task, 'input', input, 'token', token, 'fence', mine, 'owner', owner,
      'queued_at', queued_at, 'started', started, 'after', '')
    redis.call('HSET', seen, 'token', token, 'task', task, 'answer', 'started', 'value', mine)
    redis.call('PEXPIRE', seen, deduped == '1' and KEEP_MS or ANSWER_MS)
    if message ~= '' then
      redis.call('HSET', by, 'session', session, 'task', task)
      redis.call('PEXPIRE', by, KEEP_MS)
    end
  end
end

set_lease(lease, token, owner, mine, lease_ms)
redis.call('PEXPIRE', run, KEEP_MS)
set_due(active, session, lease_ms)

local order = redis.call('HMGET', cancel, 'task', 'by', 'reason')
if order[1] == task then return {'renewed', order[2], order[3]} end
return {'renewed'}
