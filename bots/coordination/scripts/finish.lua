-- FINISH: end the run and take the next waiting one. With an empty next token nobody takes it: the sweepers may.
-- {'lost'} {'done', {items}} {'next', fence, input, queued_at, {items}}
local run, lease, queue, fence, cancel, active = unpack(KEYS)
local token, mine, task, next_token, owner, lease_ms, session = unpack(ARGV)

-- Above the finished run's fence: a RENEW of it that comes late must not take the run for one lost in a restart.
local function close_fence()
  local above = math.max(tonumber(redis.call('GET', fence) or '0'), tonumber(mine) + 1)
  redis.call('SET', fence, text(above), 'PX', KEEP_MS)
end

local now = redis.call('HMGET', run, 'task', 'token', 'after', 'fence', 'input', 'queued_at')
if not now[1] then
  close_fence()
  return {'done', redis.call('LRANGE', queue, 0, -1)}
end
if now[2] ~= token then
  -- The repeat of a FINISH whose reply was lost finds its own next run.
  if next_token ~= '' and now[2] == next_token and now[3] == token then
    return {'next', now[4], now[5], now[6], redis.call('LRANGE', queue, 0, -1)}
  end
  return {'lost'}
end

redis.call('DEL', run, lease)
if redis.call('HGET', cancel, 'task') == task then redis.call('DEL', cancel) end
local item = redis.call('LPOP', queue)
if not item then
  close_fence()
  redis.call('ZREM', active, session)
  return {'done', {}}
end

local head, input = read_item(item)
local higher = next_fence(fence, tonumber(mine))
redis.call('HSET', run, 'task', head.task, 'input', input, 'token', next_token, 'fence', higher, 'owner', owner,
  'queued_at', head.queued_at, 'started', '0', 'after', token)
redis.call('PEXPIRE', run, KEEP_MS)
local waiting = redis.call('LRANGE', queue, 0, -1)
if next_token == '' then
  set_due(active, session, 0)
  return {'done', waiting}
end
set_lease(lease, next_token, owner, higher, lease_ms)
set_due(active, session, lease_ms)
return {'next', higher, input, head.queued_at, waiting}
