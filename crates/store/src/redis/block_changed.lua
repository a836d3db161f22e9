-- Sets a flag that was changed, unless another change went on at the same time.
-- KEYS: block:{pair}:user. ARGV: the flag, how long (ms), how long to stay unknown (ms).
if redis.call('GET', KEYS[1]) == '??' then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
else
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
return redis.status_reply('OK')
