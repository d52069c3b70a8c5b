"""Celery on Redis, which keeps no results by default.

A message is acknowledged before its task runs, so that a dead worker's task is
lost; the one that recovery is measured with is acknowledged late, and comes
back after the visibility timeout of an hour.
"""

from bench.peers.scripted import Scripted, both

UNFINISHED = "LLEN celery\nHLEN unacked"

PEERS = both(lambda config: Scripted("celery", "redis", config, "celery_worker", UNFINISHED))
