"""Dramatiq on Redis, which keeps no results by default.

A dead worker's messages are handed out again when it was silent for a minute
and some later command, one in a thousand, happens to look for such.
"""

from bench.peers.scripted import Scripted

PROGRAM = "dramatiq_worker"
UNFINISHED = "HLEN dramatiq:default.msgs"

PEERS = [
    Scripted("dramatiq", "redis", "default", PROGRAM, UNFINISHED, poll_seconds=1.0),
    Scripted("dramatiq", "redis", "tuned", PROGRAM, UNFINISHED),
]
