"""huey on Redis. A task is taken off its list before it runs, so that a dead worker's task is lost."""

from bench.peers.scripted import Scripted, both

UNFINISHED = "LLEN huey.redis.bench"

PEERS = both(lambda config: Scripted("huey", "redis", config, "huey_redis_worker", UNFINISHED))
