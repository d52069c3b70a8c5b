"""Chancy. Outcomes are written once a second, in batches, so a killed worker runs up to a second's finished jobs again.

By default a queue takes as many jobs as there are cores every five seconds, however many wait.
"""

from bench.peers.scripted import Scripted

UNFINISHED = "SELECT count(*) FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed')"

PEERS = [
    Scripted("chancy", "postgres", "default", "chancy_worker", UNFINISHED, counts=False),
    Scripted("chancy", "postgres", "tuned", "chancy_worker", UNFINISHED),
]
