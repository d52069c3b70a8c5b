"""DBOS, whose jobs are workflows with a status row each. Another executor takes over a dead one's only under its Conductor."""

from bench.peers.scripted import Scripted, both

UNFINISHED = "SELECT count(*) FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'DELAYED', 'PENDING')"

PEERS = both(lambda config: Scripted("dbos", "postgres", config, "dbos_worker", UNFINISHED))
