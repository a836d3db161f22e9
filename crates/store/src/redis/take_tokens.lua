-- A bucket of tokens, kept as the time at which it will be full again (GCRA). Returns 0, or after how many ms there
-- will be enough.
-- KEYS: rate:{user}. ARGV: now (ms), tokens a second, size of the bucket, how many to take.
local now, size = tonumber(ARGV[1]), tonumber(ARGV[3])
local each = 1000 / tonumber(ARGV[2])
-- More than the bucket holds is a full bucket's worth: it could never be had otherwise.
local cost = math.min(tonumber(ARGV[4]), size) * each
local full = tonumber(redis.call('GET', KEYS[1]) or '') or now
-- An empty bucket is the most that can be missing; a time beyond that comes from a node whose clock is ahead.
full = math.min(math.max(full, now), now + size * each) + cost
local wait = full - size * each - now
-- A part of a microsecond is rounding, not a wait.
if wait > 0.001 then
  return math.ceil(wait)
end
redis.call('SET', KEYS[1], string.format('%.4f', full), 'PX', math.ceil(full - now) + 60000)
return 0
