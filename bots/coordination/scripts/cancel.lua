-- CANCEL one task: tell the owner, or take it out of the queue.
-- {'running', owner} {'removed', item, {items}} {'none'}
local run, queue, cancel, dropped = unpack(KEYS)
local task, by, reason = unpack(ARGV)

local now = redis.call('HMGET', run, 'task', 'owner')
if now[1] == task then
  if redis.call('HGET', cancel, 'task') ~= task then
    redis.call('HSET', cancel, 'task', task, 'by', by, 'reason', reason)
  end
  redis.call('PEXPIRE', cancel, CANCEL_MS)
  return {'running', now[2]}
end

for _, item in ipairs(redis.call('LRANGE', queue, 0, -1)) do
  local head = read_item(item)
  if head.task == task then
    redis.call('LREM', queue, 1, item)
    -- A repeat, after a lost reply, must hear the same; a repeated ADMIT must hear that it was recalled.
    redis.call('SET', dropped, item, 'PX', MINUTE_MS)
    if head.gone ~= '' then redis.call('SET', head.gone, '1', 'PX', KEEP_MS) end
    return {'removed', item, redis.call('LRANGE', queue, 0, -1)}
  end
end

local item = redis.call('GET', dropped)
if item then return {'removed', item, redis.call('LRANGE', queue, 0, -1)} end
return {'none'}
