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


def test_an_event_that_commits_late_is_counted_once(postgres_url: str, on_postgres: Ledger) -> None:
    on_postgres.enqueue("before")
    counted(on_postgres)
    with psycopg.connect(postgres_url) as connection:
        on_postgres.enqueue("late", connection=connection)
        on_postgres.enqueue("quick")
        # The position of "quick" is above that of "late", which may still be committed.
        on_postgres.history_writer.advance(500)
        assert on_postgres.job_totals().statuses == {"queued": 1}
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
                assert job.fence is not None
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
