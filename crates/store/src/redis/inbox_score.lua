-- Where a conversation stands in a complete set: its score, or an empty text if it is not in it. Nothing if the set is
-- not complete.
-- KEYS[1] inbox:{user}; ARGV conversation
if not redis.call('ZSCORE', KEYS[1], '#') then
  return false
end
return redis.call('ZSCORE', KEYS[1], ARGV[1]) or ''
