"""graphile-worker. A finished job is deleted; a dead worker's jobs stay locked for 4 hours."""

from bench.peers.scripted import Scripted, both

UNFINISHED = "SELECT count(*) FROM graphile_worker._private_jobs"

PEERS = both(lambda config: Scripted("graphile-worker", "postgres", config, "graphile_worker.mjs", UNFINISHED))
