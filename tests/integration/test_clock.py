"""On PostgreSQL only the server's clock counts: a worker whose clock is an hour wrong changes no lease and no time."""

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast import Ledger
from tests.support.histories import all_events, problems
from tests.support.processes import Program


def server_time(url: str) -> datetime:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    return row[0].astimezone(UTC)


@pytest.mark.parametrize("wrong_by", [-3_600, 3_600])
def test_a_worker_with_a_wrong_clock_changes_no_time(pg_url: str, postgres_url: str, on_postgres: Ledger, wrong_by: int) -> None:
    on_postgres.enqueue_many([{"kind": "work"}] * 3)
    [mine] = on_postgres.claim("right", start=True)
    before = server_time(postgres_url)
    with Program("wrong_clock", pg_url, wrong_by) as program:
        swept, swept_again, job_id, claim_lease, started, beat_lease, lease, available, created = program.answer()
        program.wait()
    after = server_time(postgres_url)

    # No lease has expired: the sweep of a process with a wrong clock changes nothing.
    assert (swept, swept_again) == ({}, {})
    assert on_postgres.get(mine.id).record == mine.record
    low, high, ttl = before.timestamp(), after.timestamp(), 60
    assert low <= started <= high
    assert low <= created <= high
    assert low + 10 <= available <= high + 10
    assert low + ttl <= claim_lease <= beat_lease <= high + ttl
    assert lease == beat_lease
    times = [(event.received_at, event.at) for event in all_events(on_postgres)]
    assert all(at == received for received, at in times)
    assert [received for received, _ in times] == sorted(received for received, _ in times)
    assert max(times)[0] <= after
    assert min(times)[0] > before - timedelta(minutes=1)
    assert on_postgres.get(job_id).status == "succeeded"
    assert problems(on_postgres) == []
