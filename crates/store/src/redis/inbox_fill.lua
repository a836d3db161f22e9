-- Puts rows that a rebuild has read into its set, and, with the last of them, marks the set complete. Returns 0 if the
-- rebuild's token is gone.
-- KEYS: inbox:{user}. ARGV: "?token", cap, how long to keep the set (ms), built_at or '' if more rows follow,
-- then time (ms), conversation, ...
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return 0
end
for i = 5, #ARGV, 2 do
  redis.call('ZADD', KEYS[1], 'GT', ARGV[i], ARGV[i + 1])
end
if ARGV[4] == '' then
  return 1
end

local floor = -1
for i, marker in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', '(0', 'BYSCORE')) do
  if marker == '!' then
    floor = -tonumber(redis.call('ZSCORE', KEYS[1], marker)) - 1
  else
    redis.call('ZREM', KEYS[1], marker)
  end
end
redis.call('ZADD', KEYS[1], '-' .. ARGV[4], '#')
-- And by whom it was made: a server that took over, or came back with what it had saved, may lack what was touched last.
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
redis.call('ZADD', KEYS[1], -2, '@' .. server)

local markers = redis.call('ZCOUNT', KEYS[1], '-inf', '(0')
local beyond = redis.call('ZCARD', KEYS[1]) - markers - tonumber(ARGV[2])
if beyond > 0 then
  local last = markers + beyond - 1
  local cut = tonumber(redis.call('ZRANGE', KEYS[1], last, last, 'WITHSCORES')[2])
  redis.call('ZREMRANGEBYRANK', KEYS[1], markers, last)
  floor = math.max(floor, cut)
  redis.call('ZADD', KEYS[1], string.format('%.0f', -floor - 1), '!')
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
