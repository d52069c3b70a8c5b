"""PgQueuer. A done job is deleted, and a line of its log tells the outcome; both are written up to 100 ms later, in batches."""

from bench.peers.scripted import Scripted, both

PEERS = both(lambda config: Scripted("pgqueuer", "postgres", config, "pgqueuer_worker", "SELECT count(*) FROM pgqueuer"))
