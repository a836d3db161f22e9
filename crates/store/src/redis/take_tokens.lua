-- Token buckets, each kept as the time at which it will be full again (GCRA).
-- "take" takes from all of them or from none. Returns 0, or after how many ms there will be enough
-- in all. "charge" is for tokens that were spent already: it takes them in any case. Returns 0, or
-- after how many ms no bucket is in debt any more. A bucket owes at most as much as it holds.
-- KEYS: the user's buckets, rate:{user} and rate:{user}:<name>. ARGV: now (ms), "take" or "charge",
-- then for each bucket: in how many ms it gets how many tokens, its size, how many to take.
local now, charge, longest = tonumber(ARGV[1]), ARGV[2] == 'charge', 0
local taken = {}
for i, key in ipairs(KEYS) do
  local at = 4 * i - 1
  local each = tonumber(ARGV[at]) / tonumber(ARGV[at + 1])
  local size = tonumber(ARGV[at + 2]) * each
  -- More than the bucket holds is a full bucket's worth: it could never be had otherwise.
  local cost = math.min(tonumber(ARGV[at + 3]) * each, size)
  -- The most that can be missing before and after; a time beyond that comes from a node whose clock
  -- is ahead.
  local most_before, most_after = now + size, now + 2 * size
  if charge then
    most_before = most_after
  end
  local full = tonumber(redis.call('GET', key) or '') or now
  full = math.min(math.min(math.max(full, now), most_before) + cost, most_after)
  taken[i] = full
  local wait = full - size - now
  -- A part of a microsecond is rounding, not a wait.
  if wait > 0.001 then
    longest = math.max(longest, math.ceil(wait))
  end
end
if longest > 0 and not charge then
  return longest
end
for i, key in ipairs(KEYS) do
  redis.call('SET', key, string.format('%.4f', taken[i]), 'PX', math.ceil(taken[i] - now) + 60000)
end
return longest
