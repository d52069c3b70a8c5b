"""Schedules in several processes: each firing makes one job, also if processes are killed or a row is locked."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast import Ledger
from holdfast.testing import ManualClock
from tests.support.histories import all_events, count_jobs, problems
from tests.support.processes import Program

AGO = timedelta(minutes=20)


def set_in_the_past(url: str, names: list[str], **fields: object) -> datetime:
    """Set schedules as of some time ago, so that many firings are due. Return that time."""
    then = datetime.now(UTC) - AGO
    with holdfast.open(url, clock=ManualClock(then)) as ledger:
        for name in names:
            ledger.set_schedule(name, "work", every="1s", missed="all", **fields)  # type: ignore[arg-type]
    return then


def check_firings(ledger: Ledger, names: list[str], since: datetime) -> None:
    """Every planned time of every schedule, up to its last firing, has one job."""
    made = Counter(event.request_id for event in all_events(ledger) if event.type == "enqueued")
    assert set(made.values()) == {1}
    for name in names:
        found = ledger.schedule(name)
        first = since.replace(microsecond=0) + timedelta(seconds=1)
        last = found.last_at or first - timedelta(seconds=1)
        planned = [first + timedelta(seconds=n) for n in range(int((last - first).total_seconds()) + 1)]
        expected = {f"{name}@{at.isoformat().replace('+00:00', 'Z')}" for at in planned}
        assert {request_id for request_id in made if request_id is not None and request_id.startswith(f"{name}@")} == expected
        assert (found.fired, found.skipped) == (len(planned), 0)
    assert problems(ledger) == []


def sweep_and_die(ledger: Ledger, url: str, *, processes: int, lives: int, schedules: int) -> None:
    names = [f"s{number}" for number in range(schedules)]
    since = set_in_the_past(url, names)
    for _ in range(lives):
        with ExitStack() as stack:
            programs = [stack.enter_context(Program("sweeping", url)) for _ in range(processes)]
            for program in programs:
                assert program.answer() == ["ready"]
            for program in programs:
                program.answer()
                program.kill()  # it is in the middle of its next sweep
    check_firings(ledger, names, since)
    while ledger.sweep().get("enqueued"):
        pass
    check_firings(ledger, names, since)
    assert count_jobs(ledger) >= schedules * AGO.total_seconds()


def test_each_firing_makes_one_job_though_sweepers_are_killed(store_url: str, real: Ledger) -> None:
    sweep_and_die(real, store_url, processes=3, lives=1, schedules=2)


@pytest.mark.torture
def test_each_firing_makes_one_job_though_many_sweepers_are_killed(store_url: str, real: Ledger) -> None:
    sweep_and_die(real, store_url, processes=8, lives=10, schedules=10)


@pytest.fixture
def other_session(pg_url: str) -> "Iterator[psycopg.Connection[tuple[object, ...]]]":
    url, _, schema = pg_url.partition("?schema=")
    with psycopg.connect(url) as connection:
        connection.execute(sql.SQL("SET search_path TO {}").format(sql.Identifier(schema)))
        yield connection


@pytest.mark.parametrize("locked", ["the schedule", "its job"])
def test_a_locked_row_delays_only_its_own_schedule(
    pg_url: str, on_postgres: Ledger, other_session: "psycopg.Connection[tuple[object, ...]]", locked: str
) -> None:
    set_in_the_past(pg_url, ["free"])
    set_in_the_past(pg_url, ["held"], overlap="cancel")
    if locked == "its job":
        while on_postgres.schedule("held").last_job is None:
            on_postgres.sweep()
        last = on_postgres.schedule("held").last_job
        other_session.execute("SELECT id FROM jobs WHERE id = %s FOR UPDATE", [last])
    else:
        other_session.execute("SELECT name FROM schedules WHERE name = 'held' FOR UPDATE")
    before = {name: on_postgres.schedule(name).fired for name in ("free", "held")}
    on_postgres.sweep()
    assert on_postgres.schedule("free").fired > before["free"]
    assert on_postgres.schedule("held").fired == before["held"]
    other_session.rollback()
    on_postgres.sweep()
    assert on_postgres.schedule("held").fired > before["held"]
    assert on_postgres.schedule("held").last_error is None


def test_an_idle_sweeper_reads_the_next_time_with_what_it_reads_anyway(real: Ledger) -> None:
    """A schedule that is due makes the duty wanted a little earlier; one that is due later does not."""
    assert not real.wants_sweeping("me")
    real.set_schedule("later", "work", every="1h", start=datetime.now(UTC) + timedelta(hours=1))
    assert not real.wants_sweeping("me")
    real.set_schedule("soon", "work", every="1h", start=datetime.now(UTC) + timedelta(seconds=2))
    assert real.wants_sweeping("me")
