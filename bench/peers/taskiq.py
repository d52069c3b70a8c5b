"""taskiq on a Redis stream, which keeps no results by default. An unacknowledged message is delivered again after 10 minutes."""

from bench.peers.scripted import Scripted, both

# The stream keeps what was read and acknowledged, and only a newer server
# counts what its group has not read yet.
UNFINISHED = """EVAL "\
local group = redis.call('XINFO', 'GROUPS', 'taskiq')[1] \
local pending, last \
for i = 1, #group, 2 do \
  if group[i] == 'pending' then pending = group[i + 1] end \
  if group[i] == 'last-delivered-id' then last = group[i + 1] end \
end \
return pending + #redis.call('XRANGE', 'taskiq', '(' .. last, '+')" 0"""

PEERS = both(lambda config: Scripted("taskiq", "redis", config, "taskiq_worker", UNFINISHED))
