"""Holdfast, with three events for every finished job."""

from bench.peers.scripted import Scripted

LIVE = "'queued', 'claimed', 'running', 'stalled'"

PEERS = [
    Scripted(
        "holdfast",
        "sqlite",
        "default",
        "holdfast_worker",
        f"SELECT count(*) FROM holdfast_jobs WHERE status IN ({LIVE})",
        own_python=True,
    ),
    Scripted(
        "holdfast",
        "postgres",
        "default",
        "holdfast_worker",
        f"SELECT count(*) FROM holdfast.jobs WHERE status IN ({LIVE})",
        own_python=True,
    ),
]
