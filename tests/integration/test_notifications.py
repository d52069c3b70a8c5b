"""Notifications on PostgreSQL: sent with the commit, at most one in an interval. They never make an enqueue fail."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Ledger
from tests.integration.conftest import Opener
from tests.support.waiting import wait_until
from tools.pgserver import PostgresServer

ENQUEUES: dict[str, Callable[[Ledger], Any]] = {
    "plain": lambda ledger: ledger.enqueue("work"),
    "with options": lambda ledger: ledger.enqueue("work", priority=5),
    "many": lambda ledger: ledger.enqueue_many([{"kind": "work"}, {"kind": "other"}]),
}
FULL = 80
"""More notifications of almost a page each than the smallest queue of a server has pages."""


def notifications(schema: str) -> list[str]:
    """The threads that send notifications of this ledger."""
    return [thread.name for thread in threading.enumerate() if thread.name == f"holdfast-notify-{schema}"]


@pytest.mark.parametrize("enqueue", ENQUEUES)
def test_a_single_enqueue_takes_one_round_trip_and_notifies(
    pg_url: str, on_postgres: Ledger, tmp_path: Path, enqueue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.store.postgres.wakeup.INTERVAL_SECONDS", 0.0)
    for _ in range(5):
        ENQUEUES[enqueue](on_postgres)
    [connection] = on_postgres._store._pool.idle  # type: ignore[attr-defined]
    waiter = on_postgres.waiter()
    try:
        with (tmp_path / "trace").open("w+") as file:
            connection.pgconn.trace(file.fileno())
            ENQUEUES[enqueue](on_postgres)
            connection.pgconn.untrace()
            file.seek(0)
            assert len(re.findall(r"\tF\t\d+\tSync\b", file.read())) == 1
        assert waiter.wait(5)
        assert notifications(pg_url.partition("schema=")[2]) == []
    finally:
        waiter.close()


def test_a_second_notification_is_sent_after_the_interval(on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.postgres.wakeup.INTERVAL_SECONDS", 0.2)
    waiter = on_postgres.waiter()
    try:
        on_postgres.enqueue("work")
        on_postgres.enqueue("work", dedupe_key="k")
        assert waiter.wait(5)
        assert not waiter.wait(0)
        assert waiter.wait(5)
    finally:
        waiter.close()


def test_a_new_job_beside_a_deduplicated_one_notifies(on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.store.postgres.wakeup.INTERVAL_SECONDS", 0.2)
    waiter = on_postgres.waiter()
    try:
        on_postgres.enqueue("work", dedupe_key="known")
        assert waiter.wait(5)
        while waiter.wait(0.3):
            pass
        on_postgres.enqueue_many([{"kind": "work", "dedupe_key": key} for key in ("known", "new")])
        assert waiter.wait(5)
    finally:
        waiter.close()


def test_a_full_notification_queue_prevents_no_enqueue(restartable_server: PostgresServer, opened: Opener) -> None:
    with psycopg.connect(restartable_server.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET max_notify_queue_pages = 64")
    restartable_server.stop()
    restartable_server.start()
    ledger = opened(restartable_server.url)
    with psycopg.connect(restartable_server.url) as reader, psycopg.connect(restartable_server.url, autocommit=True) as writer:
        reader.execute("LISTEN something")
        reader.commit()
        # A listener within a transaction does not read notifications, and unread ones stay in the queue.
        reader.execute("SELECT 1")
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            notify(writer, FULL)
        jobs = [ledger.enqueue("work").id, ledger.enqueue("work", dedupe_key="k").id]
        assert [job.id for job in ledger.list(status="queued")] == jobs
        wait_until(lambda: ledger._store._notifier._pending == set(), what="a ring in vain")  # type: ignore[attr-defined]
        reader.rollback()
        # Reading the usage frees the queue.
        wait_until(lambda: writer.execute("SELECT pg_notification_queue_usage() < 0.1").fetchone() == (True,))
    waiter = ledger.waiter()
    try:
        ledger.enqueue("work")
        assert waiter.wait(5)
    finally:
        waiter.close()


def notify(connection: "psycopg.Connection[Any]", times: int) -> None:
    for _ in range(times):
        connection.execute("SELECT pg_notify('something', repeat('x', 7900) || random()::text)")
