"""Procrastinate. A finished job stays in its table, with its events; a killed worker's jobs wait for a task of the user's own."""

from bench.peers.scripted import Scripted, both

UNFINISHED = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"

PEERS = both(lambda config: Scripted("procrastinate", "postgres", config, "procrastinate_worker", UNFINISHED))
