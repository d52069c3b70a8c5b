"""Huey on SQLite. A job is deleted before it runs, so a killed worker's job is lost; the last one's end leaves no trace.

Its option to leave fsync out is not used: the figures are of durable queues.
"""

from bench.peers.scripted import Scripted, both

PEERS = both(lambda config: Scripted("huey", "sqlite", config, "huey_worker", "SELECT count(*) FROM task"))
