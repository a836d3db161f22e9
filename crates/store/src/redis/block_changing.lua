-- Marks a flag as being changed; twice at once as "??", which stays unknown until it expires: which of the two writes
-- came last is for the table to say.
-- KEYS: block:{pair}:user. ARGV: how long (ms).
local mark = '?'
if string.sub(redis.call('GET', KEYS[1]) or '', 1, 1) == '?' then
  mark = '??'
end
redis.call('SET', KEYS[1], mark, 'PX', ARGV[1])
return redis.status_reply('OK')
