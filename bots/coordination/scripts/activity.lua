-- Who runs and who waits, at one moment. {input or '', queued_at, {items}}
local run, queue = unpack(KEYS)
local now = redis.call('HMGET', run, 'input', 'queued_at')
return {now[1] or '', now[2] or '0', redis.call('LRANGE', queue, 0, -1)}
