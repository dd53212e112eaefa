-- Before every script: the times to live, the clock, the fence, and how a waiting item is written.
local KEEP_MS = 48 * 3600 * 1000      -- input, queue, fence, dedupe, tombstones: vendors re-deliver for hours
local ANSWER_MS = 10 * 60 * 1000      -- the answer to a request without dedupe id: only a repeat asks for it
local ENGAGED_MS = 7 * 24 * 3600 * 1000
local CANCEL_MS = 10 * 60 * 1000
local MINUTE_MS = 60 * 1000

-- tostring() of a number keeps 14 digits and may write 1e+15; a fence must come back as it went in.
local function text(number)
  return string.format('%.0f', number)
end

local function now_ms()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- A hybrid clock: grows with every owner, and with the server's time, so that a fence lost in a restart or a failover
-- is not given out a second time. `floor`: a fence known from elsewhere, which must be passed.
local function next_fence(key, floor)
  local fence = math.max(tonumber(redis.call('GET', key) or '0') + 1, floor + 1, now_ms())
  redis.call('SET', key, text(fence), 'PX', KEEP_MS)
  return text(fence)
end

local function set_lease(key, token, owner, fence, lease_ms)
  redis.call('DEL', key)
  redis.call('HSET', key, 'token', token, 'owner', owner, 'fence', fence)
  redis.call('PEXPIRE', key, lease_ms)
end

local function set_due(key, member, lease_ms)
  redis.call('ZADD', key, text(now_ms() + tonumber(lease_ms)), member)
end

-- A waiting item is one line of JSON {task, gone, queued_at}, then the input, which no script looks into.
local function make_item(task, gone, queued_at, input)
  return cjson.encode({task = task, gone = gone, queued_at = queued_at}) .. '\n' .. input
end

local function read_item(item)
  local line = string.find(item, '\n', 1, true)
  return cjson.decode(string.sub(item, 1, line - 1)), string.sub(item, line + 1)
end
