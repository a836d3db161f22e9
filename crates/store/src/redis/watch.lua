-- Sets whom a live session watches. Returns what it watched before (text, perhaps empty), or nothing if the session
-- is not live.
-- KEYS: ws:{user}, watching:{user}. ARGV: now, session, the watch (empty: none).
local expires = string.match(redis.call('HGET', KEYS[1], ARGV[2]) or '', '^(%d+) ')
if expires == nil or tonumber(expires) <= tonumber(ARGV[1]) then
  return false
end
local before = redis.call('HGET', KEYS[2], ARGV[2]) or ''
if ARGV[3] == '' then
  redis.call('HDEL', KEYS[2], ARGV[2])
else
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
  -- As long as the sessions: a refresh extends both.
  local kept = redis.call('PTTL', KEYS[1])
  if redis.call('PTTL', KEYS[2]) < kept then
    redis.call('PEXPIRE', KEYS[2], kept)
  end
end
return before
