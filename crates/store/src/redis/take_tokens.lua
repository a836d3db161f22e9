-- Token buckets, each kept as the time at which it will be full again (GCRA). Takes from all of them or from none.
-- Returns 0, or after how many ms there will be enough in all.
-- KEYS: the user's buckets, rate:{user} and rate:{user}:<name>. ARGV: now (ms), then for each bucket: in how many ms it
-- gets how many tokens, its size, how many to take.
local now, longest = tonumber(ARGV[1]), 0
local taken = {}
for i, key in ipairs(KEYS) do
  local at = 4 * i - 2
  local size = tonumber(ARGV[at + 2])
  local each = tonumber(ARGV[at]) / tonumber(ARGV[at + 1])
  -- More than the bucket holds is a full bucket's worth: it could never be had otherwise.
  local cost = math.min(tonumber(ARGV[at + 3]), size) * each
  local full = tonumber(redis.call('GET', key) or '') or now
  -- An empty bucket is the most that can be missing; a time beyond that comes from a node whose clock is ahead.
  full = math.min(math.max(full, now), now + size * each) + cost
  taken[i] = full
  local wait = full - size * each - now
  -- A part of a microsecond is rounding, not a wait.
  if wait > 0.001 then
    longest = math.max(longest, math.ceil(wait))
  end
end
if longest > 0 then
  return longest
end
for i, key in ipairs(KEYS) do
  redis.call('SET', key, string.format('%.4f', taken[i]), 'PX', math.ceil(taken[i] - now) + 60000)
end
return 0
