-- Extends a user's sessions that are live. Answers for each: 0 not there, 1 extended, or its watch (text) if the
-- index of that has not been touched for long.
-- KEYS: ws:{user}, watching:{user}.
-- ARGV: now, expires_at, how long to keep the keys (ms), touch what was touched before (ms), session ...
local now, stale = tonumber(ARGV[1]), tonumber(ARGV[4])
local answers, any = {}, false
for i = 5, #ARGV do
  local session, answer = ARGV[i], 0
  local expires, rest = string.match(redis.call('HGET', KEYS[1], session) or '', '^(%d+)( .*)$')
  if expires ~= nil and tonumber(expires) > now then
    redis.call('HSET', KEYS[1], session, ARGV[2] .. rest)
    answer, any = 1, true
    local watch = redis.call('HGET', KEYS[2], session)
    local stamp, touched, users = string.match(watch or '', '^(%x+) (%d+)( .*)$')
    if stamp ~= nil and tonumber(touched) < stale then
      redis.call('HSET', KEYS[2], session, stamp .. ' ' .. ARGV[1] .. users)
      answer = watch
    end
  end
  answers[#answers + 1] = answer
end
if any then
  for _, key in ipairs(KEYS) do
    if redis.call('PTTL', key) < tonumber(ARGV[3]) then
      redis.call('PEXPIRE', key, ARGV[3])
    end
  end
end
return answers
