"""Awa. A job that succeeds stays among the ready entries, and a line of a batch tells that it is done."""

from bench.peers.scripted import Scripted, both

# Its view `awa.jobs` says the same, in seconds where this takes milliseconds.
UNFINISHED = """
    SELECT (SELECT count(*) FROM awa.ready_entries)
         - (SELECT coalesce(sum(completed_count), 0) FROM awa.receipt_completion_batches)
         - (SELECT count(*) FROM awa.done_entries)
"""

PEERS = both(lambda config: Scripted("awa", "postgres", config, "awa_worker", UNFINISHED))
