-- ADMIT: refuse, start or queue one request. One command for all of it.
-- {'recalled'} {'duplicate', task} {'busy', ''} {'full', ''} {'started', fence} {'queued', position}
local gone, seen, run, lease, queue, fence, by, engaged, active = unpack(KEYS)
local token, task, input, owner, lease_ms, cap, policy, floor, session, message, deduped = unpack(ARGV)

if message ~= '' and redis.call('EXISTS', gone) == 1 then
  return {'recalled'}
end

local said = redis.call('HMGET', seen, 'token', 'task', 'answer', 'value')
if said[1] then
  -- The same token is the same call, repeated because its reply was lost: the same answer.
  if said[1] == token then return {said[3], said[4]} end
  return {'duplicate', said[2]}
end

local answer, value = '', ''
if redis.call('EXISTS', run) == 1 then
  if policy == 'reject' then
    answer = 'busy'
  elseif redis.call('LLEN', queue) >= tonumber(cap) then
    answer = 'full'
  else
    local item = make_item(task, message ~= '' and gone or '', text(now_ms()), input)
    answer, value = 'queued', text(redis.call('RPUSH', queue, item))
    redis.call('PEXPIRE', queue, KEEP_MS)
  end
else
  answer, value = 'started', next_fence(fence, tonumber(floor))
  redis.call('HSET', run, 'task', task, 'input', input, 'token', token, 'fence', value, 'owner', owner,
    'queued_at', '0', 'started', '0', 'after', '')
  redis.call('PEXPIRE', run, KEEP_MS)
  set_lease(lease, token, owner, value, lease_ms)
  set_due(active, session, lease_ms)
end

-- A refusal too: the person was told to send it again, so a late second delivery must not run beside that.
redis.call('HSET', seen, 'token', token, 'task', task, 'answer', answer, 'value', value)
redis.call('PEXPIRE', seen, deduped == '1' and KEEP_MS or ANSWER_MS)
if answer == 'busy' or answer == 'full' then return {answer, ''} end
if message ~= '' then
  redis.call('HSET', by, 'session', session, 'task', task)
  redis.call('PEXPIRE', by, KEEP_MS)
end
redis.call('SET', engaged, '1', 'PX', ENGAGED_MS)
return {answer, value}
