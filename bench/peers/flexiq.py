"""FlexiQ on SQLite, its default storage, with synchronous=NORMAL: a power cut may undo its last commits, unlike the others'."""

from bench.peers.scripted import Scripted, both

UNFINISHED = "SELECT count(*) FROM jobs WHERE status IN (0, 1)"

PEERS = both(lambda config: Scripted("flexiq", "sqlite", config, "flexiq_worker", UNFINISHED))
