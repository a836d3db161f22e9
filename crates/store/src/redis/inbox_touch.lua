-- Moves a conversation up, if the set is complete or being rebuilt. One entry put into no set would look like a set.
-- KEYS: inbox:{user}. ARGV: cap, time (ms), conversation.
local floor, open = -1, false
for i, marker in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', '(0', 'BYSCORE')) do
  if marker == '!' then
    floor = -tonumber(redis.call('ZSCORE', KEYS[1], marker)) - 1
  else
    open = true
  end
end
-- What is no newer than what was cut has no place: others of its age are missing.
if not open or tonumber(ARGV[2]) <= floor then
  return 0
end
redis.call('ZADD', KEYS[1], 'GT', ARGV[2], ARGV[3])

local markers = redis.call('ZCOUNT', KEYS[1], '-inf', '(0')
local beyond = redis.call('ZCARD', KEYS[1]) - markers - tonumber(ARGV[1])
if beyond > 0 then
  local last = markers + beyond - 1
  local cut = tonumber(redis.call('ZRANGE', KEYS[1], last, last, 'WITHSCORES')[2])
  redis.call('ZREMRANGEBYRANK', KEYS[1], markers, last)
  redis.call('ZADD', KEYS[1], string.format('%.0f', -math.max(cut, floor) - 1), '!')
end
return 1
