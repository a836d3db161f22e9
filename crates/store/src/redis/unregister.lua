-- Removes a session, and the expired ones beside it. Returns how many are left, and the watches of those that went
-- (session, watch, ...).
-- KEYS: ws:{user}, watching:{user}. ARGV: now, session.
local now, left, watches = tonumber(ARGV[1]), 0, {}
local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local id = all[i]
  local expires = string.match(all[i + 1], '^(%d+) ')
  if id == ARGV[2] or expires == nil or tonumber(expires) <= now then
    redis.call('HDEL', KEYS[1], id)
    local watch = redis.call('HGET', KEYS[2], id)
    if watch then
      redis.call('HDEL', KEYS[2], id)
      watches[#watches + 1] = id
      watches[#watches + 1] = watch
    end
  else
    left = left + 1
  end
end
return { left, watches }
