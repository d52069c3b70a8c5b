"""Frequent events by type and time on SQLite: exact after steps of the clock, and without a scan of the table."""

import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import holdfast
from holdfast import Event, Ledger
from holdfast.store.session import Session
from holdfast.store.sqlite.session import SqliteSession
from holdfast.testing import ManualClock
from tests.integration.conftest import Opener
from tests.support.histories import all_events

STEPS = 10
"""Steps of SQLite's virtual machine between two calls of the handler that counts them."""
BATCH = 1_000


def steps(ledger: Ledger, **chosen: Any) -> tuple[int, list[Event]]:
    """How many steps of SQLite's virtual machine `ledger.events` takes, and what it returns."""
    taken = 0

    def count() -> bool:
        nonlocal taken
        taken += STEPS
        return False

    def begin(session: Session) -> None:
        assert isinstance(session, SqliteSession)
        session._connection.connection.set_progress_handler(count, STEPS)

    # The connection that was returned last is taken next.
    ledger._store.read(begin)
    found = ledger.events(**chosen)
    return taken, found


def fill(ledger: Ledger, clock: ManualClock, events: int) -> datetime:
    """Write `count` events over as many seconds, and ten in the last minute.

    Return the beginning of that minute. Jobs with keys are enqueued one by one, so each event has its own batch, and
    the cost of a scan grows with the number of events.
    """
    name = ledger.position()
    for start in range(0, events, BATCH):
        ledger.enqueue_many([{"kind": "work", "dedupe_key": f"{name}/{start + n}"} for n in range(min(BATCH, events - start))])
        clock.advance(BATCH)
    since = ledger.now()
    ledger.enqueue_many([{"kind": "late"}] * 10)
    return since


def cost(url: str, events: int) -> int:
    """The cost of the query for the last minute with this many older events."""
    clock = ManualClock()
    with holdfast.open(url, clock=clock) as ledger:
        since = fill(ledger, clock, events)
        taken, found = steps(ledger, types=["enqueued", "heartbeat"], since=since)
        assert len(found) == 10
    return taken


def ratio(folder: Path, few: int, many: int) -> float:
    costs = [cost(f"sqlite:///{folder}/{events}.db", events) for events in (few, many)]
    assert costs[0] > 0
    return costs[1] / costs[0]


def test_reading_the_last_minute_costs_little_more_with_ten_times_the_events(tmp_path: Path) -> None:
    assert ratio(tmp_path, 4_000, 40_000) <= 1.5


@pytest.mark.torture
def test_reading_the_last_minute_costs_at_most_three_times_as_much_with_a_million_events(tmp_path: Path) -> None:
    assert ratio(tmp_path, 10_000, 1_000_000) <= 3


def test_an_old_minute_is_found_without_a_scan(sqlite_url: str, opened: Opener) -> None:
    clock = ManualClock()
    ledger = opened(sqlite_url, clock=clock)
    first = fill(ledger, clock, 4_000)
    clock.advance(3_600)
    costs = []
    for events in (4_000, 36_000):
        fill(ledger, clock, events)
        taken, found = steps(ledger, types=["enqueued"], since=first, until=first + timedelta(minutes=1))
        assert len(found) == 10
        costs.append(taken)
    walk, _ = steps(ledger, types=["succeeded"])
    assert costs[1] < walk / 5
    assert costs[1] < costs[0] * 1.1


def stepping(ledger: Ledger, clock: ManualClock, draw: random.Random) -> None:
    """Run jobs while the clock steps back and forth."""
    for _ in range(60):
        clock.jump(draw.choice([1, 5, 30, -1, -200, 300]))
        ledger.enqueue_many([{"kind": "work"}] * draw.randint(1, 5))
        for job in ledger.claim("w", limit=draw.randint(1, 3), start=True):
            ledger.heartbeat(job.fence)
            ledger.complete(job.fence)


def wanted(events: list[Event], types: list[str], since: datetime | None, until: datetime | None) -> list[Event]:
    return [
        event
        for event in events
        if event.type in types and (since is None or event.received_at >= since) and (until is None or event.received_at < until)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_events_found_by_time_are_exact_under_clock_steps(
    sqlite_url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.session.TIME_BLOCK", 7)
    draw, clock = random.Random(seed), ManualClock()
    ledger = opened(sqlite_url, clock=clock)
    stepping(ledger, clock, draw)
    whole = list(all_events(ledger))
    times = sorted({event.received_at for event in whole})
    for _ in range(40):
        since, until = draw.choice([None, *times]), draw.choice([None, *times])
        types = draw.sample(["enqueued", "claimed", "started", "heartbeat", "succeeded"], draw.randint(1, 5))
        expected = wanted(whole, types, since, until)
        assert ledger.events(types=types, since=since, until=until) == expected
        page = ledger.events(types=types, since=since, until=until, limit=5)
        assert page == expected[:5]
        if page:
            rest = ledger.events(types=types, since=since, until=until, after=page[-1].pos)
            assert rest == expected[5:]


def test_the_earliest_time_of_a_batch_is_used(sqlite_url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.session.TIME_BLOCK", 4)
    clock = ManualClock()
    ledger = opened(sqlite_url, clock=clock)
    begun = ledger.now()
    ledger.enqueue("work")
    clock.advance(1_000)
    ledger.enqueue_many([{"kind": "work", "priority": 1, "available_at": begun}] * 3)
    clock.jump(-1_000)
    # The clock was set back: the jobs with a higher priority have a later time than the other one.
    ledger.claim("w", limit=4)
    early = [event for event in ledger.events() if event.type == "claimed" and event.received_at < begun + timedelta(seconds=500)]
    assert len(early) == 1
    assert blocks(sqlite_url) == 2
    assert ledger.events(types=["claimed"], until=begun + timedelta(seconds=500)) == early


def test_events_of_another_program_are_found_before_and_after_their_times_are_noted(
    sqlite_url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may write events without recording their times. The next transaction that records times adds them."""
    monkeypatch.setattr("holdfast.store.sqlite.session.TIME_BLOCK", 10)
    clock = ManualClock()
    ledger = opened(sqlite_url, clock=clock)
    note = SqliteSession.note_times
    with monkeypatch.context() as older:
        older.setattr(SqliteSession, "note_times", lambda session, noted: noted)
        since = fill(ledger, clock, 3_000)
    assert len(ledger.events(types=["enqueued"], since=since)) == 10
    assert blocks(sqlite_url) == 0
    assert SqliteSession.note_times is note
    clock.advance(60)
    for _ in range(20):
        ledger.enqueue("later")
    assert blocks(sqlite_url) > 290
    assert len(ledger.events(types=["enqueued"], since=since, until=since + timedelta(minutes=1))) == 10


def test_times_of_deleted_events_are_deleted(sqlite_url: str, opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.sqlite.session.TIME_BLOCK", 10)
    clock = ManualClock()
    ledger = opened(sqlite_url, clock=clock)

    def work() -> None:
        for _ in range(50):
            [job] = [ledger.claim_job(ledger.enqueue("work").id, "w")]
            ledger.start(job.fence)
            ledger.complete(job.fence)

    work()
    assert blocks(sqlite_url) == 20
    clock.advance(3_600)
    ledger.prune(jobs_before=ledger.now() - timedelta(minutes=1))
    assert list(all_events(ledger)) == []
    work()
    work()
    assert blocks(sqlite_url) <= 41


def test_times_of_deleted_events_are_forgotten_beside_an_older_event(on_sqlite: Ledger, sqlite_url: str) -> None:
    on_sqlite.enqueue("stays", queue="later")
    on_sqlite.enqueue_many([{"kind": "work"}] * 2_000)
    held = on_sqlite.claim("w", limit=1_000, start=True) + on_sqlite.claim("w", limit=1_000, start=True)
    on_sqlite.complete_many([(job.fence, None) for job in held])
    on_sqlite.enqueue_many([{"kind": "stays", "queue": "later"}] * 500)
    noted = blocks(sqlite_url)
    later = on_sqlite.now() + timedelta(hours=1)
    assert sum(on_sqlite.prune(jobs_before=later)["jobs"] for _ in range(3)) == 2_000
    assert blocks(sqlite_url) < noted / 2
    assert len(list(all_events(on_sqlite))) == 501
    newest = on_sqlite.events(types=["enqueued"], limit=1_000)[-1]
    assert on_sqlite.events(since=newest.received_at, limit=1_000)[-1] == newest


def blocks(url: str) -> int:
    """The number of blocks of events with recorded times."""
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    try:
        return int(connection.execute("SELECT count(*) FROM holdfast_times").get)
    finally:
        connection.close()


def test_missing_times_are_restored(sqlite_url: str) -> None:
    clock = ManualClock()
    with holdfast.open(sqlite_url, clock=clock) as ledger:
        since = fill(ledger, clock, 4_000)
    connection = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
    connection.execute("DELETE FROM holdfast_times")
    connection.close()
    assert blocks(sqlite_url) == 0
    with holdfast.open(sqlite_url, clock=clock) as ledger:
        assert len(ledger.events(types=["enqueued"], since=since)) == 10
        ledger.enqueue("later")
        assert len(ledger.events(types=["enqueued"], since=since)) == 11
    assert blocks(sqlite_url) == 20
