-- Takes the next ARGV[1] seqs and returns the last of them; nothing if there is no counter: one that was lost must
-- be raised to the conversation's maximum first and never begin at 1 again.
-- KEYS: seq:{conversation}. ARGV: how many, how long to keep the counter (ms).
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
local last = redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return last
