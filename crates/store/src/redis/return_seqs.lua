-- Takes back the last seqs that were handed out, if nobody was given one after them.
-- KEYS[1] seq:{conversation}; ARGV first, last
if redis.call('GET', KEYS[1]) == ARGV[2] then
  redis.call('SET', KEYS[1], string.format('%.0f', tonumber(ARGV[1]) - 1), 'KEEPTTL')
  return 1
end
return 0
