-- Takes a conversation out. A rebuild under way may have read it before and would put it back, so it loses its token.
-- KEYS: inbox:{user}. ARGV: conversation.
redis.call('ZREM', KEYS[1], ARGV[1])
for _, marker in ipairs(redis.call('ZRANGE', KEYS[1], '-inf', '(0', 'BYSCORE')) do
  if string.sub(marker, 1, 1) == '?' then
    redis.call('ZREM', KEYS[1], marker)
  end
end
return redis.status_reply('OK')
