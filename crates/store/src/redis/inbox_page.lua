-- Reads a complete set, newest first: after a position, or down to a time. Returns nothing if the set is not
-- complete, else built_at, whether there is more in the set, whether the set was cut below what is asked for, then
-- conversation, time (ms), ...
-- KEYS: inbox:{user}. ARGV: limit, the lowest time, the position's time or '', the position's conversation.
local built = redis.call('ZSCORE', KEYS[1], '#')
if not built then
  return false
end
-- Complete on the server that made it, and on no other.
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
if not redis.call('ZSCORE', KEYS[1], '@' .. server) then
  return false
end
local limit = tonumber(ARGV[1])
local count = redis.call('ZCOUNT', KEYS[1], ARGV[2], '+inf')
local floor = redis.call('ZSCORE', KEYS[1], '!')
local cut = floor and tonumber(ARGV[2]) <= -tonumber(floor) - 1

-- In byte order: the server's own order of strings follows its locale.
local function below(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return x < y
    end
  end
  return #a < #b
end

local start = 0
if ARGV[3] ~= '' then
  -- Those of the position's own time are in descending order of conversation: find the first one below it.
  start = redis.call('ZCOUNT', KEYS[1], '(' .. ARGV[3], '+inf')
  local stop = start + redis.call('ZCOUNT', KEYS[1], ARGV[3], ARGV[3])
  while start < stop do
    local middle = math.floor((start + stop) / 2)
    if below(redis.call('ZRANGE', KEYS[1], middle, middle, 'REV')[1], ARGV[4]) then
      stop = middle
    else
      start = middle + 1
    end
  end
end

local found = math.min(limit, count - start)
local answer = { built, count - start > limit and 1 or 0, cut and 1 or 0 }
if found > 0 then
  for _, text in ipairs(redis.call('ZRANGE', KEYS[1], start, start + found - 1, 'REV', 'WITHSCORES')) do
    answer[#answer + 1] = text
  end
end
return answer
