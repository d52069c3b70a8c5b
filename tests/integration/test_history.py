"""Totals under late commits, killed services, and several services and pruners at once."""

import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import holdfast
from holdfast import Ledger
from holdfast.store.postgres.session import PostgresSession
from tests.support.histories import all_jobs
from tests.support.processes import Program, fleet


def counted(ledger: Ledger) -> None:
    while ledger.history_writer.advance(500):
        pass


def check(ledger: Ledger) -> None:
    counted(ledger)
    totals = {(row.queue, row.kind, row.status.value): row.n for row in ledger.job_totals().rows}
    assert totals == Counter((job.queue, job.kind, job.status.value) for job in all_jobs(ledger))


def kept(ledger: Ledger) -> int:
    """The number of jobs that the service has counted."""
    return sum(row.n for row in ledger._store.read(lambda session: session.totals()))


def test_an_event_that_commits_late_is_counted_once(postgres_url: str, on_postgres: Ledger) -> None:
    on_postgres.enqueue("before")
    counted(on_postgres)
    with psycopg.connect(postgres_url) as connection:
        on_postgres.enqueue("late", connection=connection)
        on_postgres.enqueue("quick")
        # The position of "quick" is above that of "late", which may still be committed.
        on_postgres.history_writer.advance(500)
        assert on_postgres.job_totals().statuses == {"queued": 2}
        assert kept(on_postgres) == 1
    assert on_postgres.job_totals().statuses == {"queued": 3}
    check(on_postgres)
    assert on_postgres.job_totals().statuses == {"queued": 3}


def test_a_transaction_that_is_rolled_back_is_not_counted(postgres_url: str, on_postgres: Ledger) -> None:
    with psycopg.connect(postgres_url) as connection:
        on_postgres.enqueue("never", connection=connection)
        on_postgres.enqueue("quick")
        connection.rollback()
    check(on_postgres)
    assert on_postgres.job_totals().statuses == {"queued": 1}


def test_a_killed_service_leaves_no_page_half_counted(store_url: str, real: Ledger) -> None:
    for life in range(3):
        real.enqueue_many([{"kind": "walk", "queue": f"q{number % 3}"} for number in range(300)])
        with Program("counting", store_url) as program:
            assert program.answer() == "ready"
            program.answer()
            for job in real.claim("w", ["q0", "q1", "q2"], limit=100, start=True):
                if job.id % (life + 2):
                    real.complete(job.fence)
            program.kill()
    check(real)


def test_services_writers_and_pruners_at_once(store_url: str, real: Ledger) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def serve(number: int) -> None:
        try:
            with holdfast.open(store_url) as ledger:
                while not stop.is_set():
                    if number < 2:
                        ledger.history_writer.advance(50)
                    else:
                        ledger.prune(jobs_before=ledger.now() - timedelta(milliseconds=5), batch=100)
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        fleet("workers.write_out_of_order", 2, url=store_url, rounds=15, timeout=600)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert failures == []
    check(real)


def test_a_job_that_is_moved_while_it_is_counted_under_the_lock_is_counted_once(
    pg_url: str, on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page is read by several statements, and another connection moves a job between two of them."""
    with holdfast.open(pg_url) as other:
        other.move(other.enqueue("k", queue="a").id, "b")
        counted(on_postgres)
        job = other.enqueue("k", queue="a")
        done = other.enqueue("k", queue="done")
        other.cancel(done.id)
        interruptions = [
            # The page that was read first can no longer be saved: one of its jobs is deleted. So it is counted under the lock.
            lambda: other.prune(jobs_before=other.now() + timedelta(seconds=1), batch=100),
            lambda: other.move(job.id, "c"),
        ]
        run = PostgresSession.rows

        def rows(session: PostgresSession, name: str, /, **params: Any) -> list[tuple[Any, ...]]:
            found = run(session, name, **params)
            if name == "tally_events" and interruptions:
                interruptions.pop(0)()
            return found

        monkeypatch.setattr(PostgresSession, "rows", rows)
        on_postgres.history_writer.advance(500)
        assert not interruptions
        check(on_postgres)


def test_a_reader_that_may_not_write_says_how_far_events_are_counted(
    store_url: str, real: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.ledger.counted.BEHIND_MAX", 5)
    real.enqueue("first")
    counted(real)
    then = real.job_totals().as_of
    with open_for_reading(store_url) as reader:
        for _ in range(5):
            real.enqueue("later")
        assert reader.job_totals().statuses == {"queued": 6}
        real.enqueue("last")
        found = reader.job_totals()
        assert (found.statuses, found.as_of.pos) == ({"queued": 1}, then.pos)
        assert found.as_of.at is not None
        assert then.at is not None
        assert found.as_of.at <= then.at
        assert reader.overview().as_of == found.as_of
        assert reader.counts() == {"default": {"queued": 1}}
    assert real.job_totals().statuses == {"queued": 7}


def test_a_reader_counts_what_cannot_be_kept_yet(postgres_url: str, on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction is open, so none of the later events may be counted for good."""
    monkeypatch.setattr("holdfast.ledger.counted.BEHIND_MAX", 2)
    with psycopg.connect(postgres_url) as connection:
        on_postgres.enqueue("late", connection=connection)
        for _ in range(5):
            on_postgres.enqueue("quick")
        assert on_postgres.job_totals().statuses == {"queued": 5}
        assert kept(on_postgres) == 0
    assert on_postgres.job_totals().statuses == {"queued": 6}


def open_for_reading(url: str) -> Ledger:
    """Open a ledger that cannot write: its connection is read-only, as on a read replica or a read-only disk."""
    if url.startswith("sqlite"):
        ledger = holdfast.open(url)
        ledger._store._take_writer().pragma("query_only", True)  # type: ignore[attr-defined]
        return ledger
    return holdfast.open(f"{url}{'&' if '?' in url else '?'}options=-c%20default_transaction_read_only%3Don", create=False)
