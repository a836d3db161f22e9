-- Opens a set for a rebuild: from now on conversations that are touched go in too. A set that is there already holds
-- nothing wrong, at worst too little, so several rebuilds share it and the first to finish completes it.
-- KEYS: inbox:{user}. ARGV: "?token", how long an unfinished set is kept (ms).
redis.call('ZADD', KEYS[1], -1, ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return redis.status_reply('OK')
