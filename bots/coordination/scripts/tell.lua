-- TELL: put a cancel order into one replica's inbox. A repeat puts it in twice, which stops the task once.
local inbox = KEYS[1]
local task, by, reason = unpack(ARGV)
redis.call('XADD', inbox, 'MAXLEN', '~', 1000, '*', 'task', task, 'by', by, 'reason', reason)
redis.call('PEXPIRE', inbox, CANCEL_MS)
return 1
