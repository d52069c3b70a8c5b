"""pg-boss. A finished job stays for a week; a dead worker's jobs are expired after 15 minutes.

By default a worker takes one job at a time and looks every 2 s, however many
wait. Tuned, its handler is called once for a whole batch, which succeeds or fails as one.
"""

from bench.peers.scripted import Scripted

PROGRAM = "pg_boss.mjs"
UNFINISHED = "SELECT count(*) FROM pgboss.job WHERE name = 'noop' AND state < 'completed'"

PEERS = [
    Scripted("pg-boss", "postgres", "default", PROGRAM, UNFINISHED, poll_seconds=2.0),
    Scripted("pg-boss", "postgres", "tuned", PROGRAM, UNFINISHED),
]
