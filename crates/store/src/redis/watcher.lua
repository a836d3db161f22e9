-- The entry of a watching session, if it is live and still has the watch with this stamp.
-- KEYS: ws:{user}, watching:{user}. ARGV: now, session, stamp.
local entry = redis.call('HGET', KEYS[1], ARGV[2])
local expires = string.match(entry or '', '^(%d+) ')
if expires == nil or tonumber(expires) <= tonumber(ARGV[1]) then
  return false
end
local stamp = string.match(redis.call('HGET', KEYS[2], ARGV[2]) or '', '^(%x+) ')
if stamp ~= ARGV[3] then
  return false
end
return entry
