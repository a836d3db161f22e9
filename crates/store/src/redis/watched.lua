-- Notes in the index of a watched user that a session watches, and lets go of what nobody touched for long.
-- KEYS: watched:{user}. ARGV: now, "session stamp watcher", how long to keep it (ms).
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', tonumber(ARGV[1]) - tonumber(ARGV[3])))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return redis.status_reply('OK')
