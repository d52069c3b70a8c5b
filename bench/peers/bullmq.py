"""BullMQ. A finished job is kept by default; a dead worker's job is found by a look every 30 s, once its lock has ended."""

from bench.peers.scripted import Scripted, both

UNFINISHED = "LLEN bull:jobs:wait\nLLEN bull:jobs:active"

PEERS = both(lambda config: Scripted("bullmq", "redis", config, "bullmq_worker.mjs", UNFINISHED))
