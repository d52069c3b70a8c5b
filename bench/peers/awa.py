"""Awa."""

from bench.peers.scripted import Scripted, both

UNFINISHED = "SELECT count(*) FROM awa.jobs WHERE state NOT IN ('completed', 'failed', 'cancelled')"

PEERS = both(lambda config: Scripted("awa", "postgres", config, "awa_worker", UNFINISHED))
