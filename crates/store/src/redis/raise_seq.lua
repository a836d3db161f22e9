-- Sets the counter to at least ARGV[1], making it if there is none.
-- KEYS: seq:{conversation}. ARGV: the seq, how long to keep the counter (ms).
local last = tonumber(redis.call('GET', KEYS[1]) or '')
if last == nil or last < tonumber(ARGV[1]) then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
else
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return redis.status_reply('OK')
