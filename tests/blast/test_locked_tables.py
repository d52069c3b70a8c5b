"""A foreign transaction keeps rows of the ledger's other tables locked."""

from datetime import timedelta

import psycopg
import pytest

from tests.blast.fleet import SHORT, UNSERVED, WORKERS, Fleet
from tests.blast.watch import Watch

TABLES = ("queues", "policies", "profiles", "settings", "declarations", "duties", "workers", "requests", "cursors", "open_claims")
SHORT_SECONDS, LONG_SECONDS = 6.0, 20.0
"""Both longer than a lease; the long one also than the time between two sign-ins of a worker."""


def fill(fleet: Fleet) -> None:
    """Put a row that the fleet may need into every table."""
    for queue in (*WORKERS, SHORT):
        fleet.ledger.pause(queue)
        fleet.ledger.unpause(queue)
    fleet.ledger.set_policy("unused", attempts_max=5)
    fleet.ledger.enqueue("quick", queue=UNSERVED, request_id="asked once")
    fleet.ledger.prune(beats_before=fleet.ledger.now() - timedelta(days=1))
    assert [table for table in TABLES if fleet.query(f"SELECT count(*) FROM {{s}}.{table}") == [(0,)]] == []


@pytest.mark.parametrize(
    ("tables", "seconds"),
    [
        pytest.param(TABLES, SHORT_SECONDS, id="every_table"),
        *(pytest.param([table], LONG_SECONDS, id=table, marks=pytest.mark.torture) for table in TABLES),
    ],
)
def test_locked_rows_of_a_table_cost_no_worker_a_job(fleet: Fleet, tables: list[str], seconds: float) -> None:
    fill(fleet)
    with Watch(fleet) as watch:
        orphan = fleet.orphan()
        with psycopg.connect(fleet.place.server) as connection:
            for table in tables:
                connection.execute(f"SELECT FROM {fleet.place.schema}.{table} FOR UPDATE")
            watch.during(seconds, orphan=orphan)
            connection.rollback()
