"""With every query plan of a store, a claim takes jobs by queue in the given order, priority, time and id."""

import random

import psycopg
import pytest
from psycopg import sql

from holdfast.ledger import Ledger
from holdfast.store.postgres.low_water_marks import LowWaterMarks
from holdfast.store.postgres.store import PostgresStore
from holdfast.testing import ManualClock

QUEUES = ["default", "b", "c", "dé", "e"]
TABLES = ("jobs", "events", "queues", "profiles", "policies")
# More claims on one connection than the server needs to choose a generic plan.
CLAIMS = 25


def analyse(ledger: Ledger) -> None:
    store = ledger._store
    if isinstance(store, PostgresStore):
        with psycopg.connect(store._conninfo, autocommit=True) as connection:
            for table in TABLES:
                connection.execute(sql.SQL("VACUUM ANALYZE {}").format(sql.Identifier(store._schema, table)))


def forget_slow_scans(ledger: Ledger) -> None:
    """Forget slow scans: after one, later claims start behind it for half a second."""
    if isinstance(ledger._store, PostgresStore):
        ledger._store._marks = LowWaterMarks()


@pytest.mark.parametrize("analysed", [False, True], ids=["fresh", "analysed"])
@pytest.mark.parametrize("paused", [0, 200], ids=["none paused", "many paused"])
@pytest.mark.parametrize("kinds", [None, ["k"]], ids=["any kind", "one kind"])
def test_claims_take_jobs_in_order(
    ledger: Ledger, clock: ManualClock, analysed: bool, paused: int, kinds: list[str] | None
) -> None:
    dice = random.Random(7)
    for number in range(paused):
        ledger.pause(f"paused {number}")
    waiting: list[tuple[str, int, int, int]] = []
    for number in range(CLAIMS):
        items = [
            {"kind": "k", "queue": dice.choice(QUEUES), "priority": dice.randint(-1, 1), "delay": dice.choice([0, 0, 1])}
            for _ in range(6)
        ]
        made = ledger.enqueue_many(items)
        clock.advance(1)
        waiting += [(job.queue, -job.priority, job.record.available_at, job.id) for job in made]
        if analysed and number in (0, CLAIMS // 2):
            analyse(ledger)
        forget_slow_scans(ledger)
        named = dice.sample(QUEUES, k=dice.randint(2, len(QUEUES)))
        ready = sorted((named.index(job[0]), *job[1:]) for job in waiting if job[0] in named)
        limit = dice.randint(1, 5)
        held = [job.id for job in ledger.claim("w", named, limit=limit, kinds=kinds)]
        assert held == [job[-1] for job in ready[:limit]]
        waiting = [job for job in waiting if job[-1] not in held]
