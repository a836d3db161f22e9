-- Adds a session. Returns two lists: the sessions that must end for it (session, entry, ...), and the watches of all
-- that went (session, watch, ...). An expired session goes without being told to; so does the session's own old entry.
-- KEYS: ws:{user}, watching:{user}.
-- ARGV: now, expires_at, how long to keep the key (ms), most sessions, session, connected_at, device, gateway.
local now, most, session, device = tonumber(ARGV[1]), tonumber(ARGV[4]), ARGV[5], ARGV[7]
local ended, watches, others = {}, {}, {}

local function remove(id)
  redis.call('HDEL', KEYS[1], id)
  local watch = redis.call('HGET', KEYS[2], id)
  if watch then
    redis.call('HDEL', KEYS[2], id)
    watches[#watches + 1] = id
    watches[#watches + 1] = watch
  end
end

local function finish(id, entry)
  remove(id)
  ended[#ended + 1] = id
  ended[#ended + 1] = entry
end

local all = redis.call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  local id, entry = all[i], all[i + 1]
  local expires, connected, of = string.match(entry, '^(%d+) (%d+) (%S+) ')
  if expires == nil or tonumber(expires) <= now or id == session then
    remove(id)
  elseif of == device then
    finish(id, entry)
  else
    others[#others + 1] = { id = id, entry = entry, connected = tonumber(connected) }
  end
end

table.sort(others, function(a, b)
  return a.connected < b.connected
end)
for i = 1, #others + 1 - most do
  finish(others[i].id, others[i].entry)
end

redis.call('HSET', KEYS[1], session, ARGV[2] .. ' ' .. ARGV[6] .. ' ' .. device .. ' ' .. ARGV[8])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return { ended, watches }
