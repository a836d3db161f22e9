-- Lists a node until a time, and lets go of those whose time is over.
-- KEYS: nodes:{role}. ARGV: now, expires_at, address, how long to keep the list (ms).
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[4]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return redis.status_reply('OK')
