"""One live job for each key, with concurrent calls and open transactions."""

import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from holdfast import Job, Ledger
from tests.integration.conftest import Opener
from tests.support.histories import count_jobs, problems
from tests.support.processes import fleet
from tests.support.waiting import wait_until


def test_one_job_is_enqueued_by_32_threads(real: Ledger) -> None:
    together = threading.Barrier(32)

    def enqueue(number: int) -> Job:
        together.wait(30)
        return real.enqueue("once", {"by": number}, dedupe_key="key")

    with ThreadPoolExecutor(32) as pool:
        jobs = list(pool.map(enqueue, range(32)))

    assert len({job.id for job in jobs}) == 1
    assert sum(job.is_new for job in jobs) == 1
    [first] = [job for job in jobs if job.is_new]
    assert {job.args["by"] for job in jobs} == {first.args["by"]}
    assert count_jobs(real) == len(real.events()) == 1


def test_one_job_is_enqueued_by_16_processes(store_url: str, real: Ledger) -> None:
    answers = fleet("workers.enqueue_key", 16, url=store_url, key="key")
    assert len({id_ for id_, _ in answers}) == 1
    assert sum(is_new for _, is_new in answers) == 1
    assert count_jobs(real) == len(real.events()) == 1


@contextmanager
def callers_connection(url: str, postgres_url: str) -> "Iterator[Any]":
    """A connection of the caller in its own transaction."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
        finally:
            connection.close()
    else:
        with psycopg.connect(postgres_url) as open_connection:
            yield open_connection


def has_to_wait(url: str, postgres_url: str) -> Callable[[], bool]:
    """Whether a writer of this store waits for another transaction."""
    if url.startswith("sqlite"):
        path = Path(url.removeprefix("sqlite:///") + "-lock")

        def taken() -> bool:
            with path.open("rb") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
                return False

        return taken

    def waits() -> bool:
        with psycopg.connect(postgres_url) as connection:
            found = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'").fetchone()
            return found != (0,)

    return waits


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_an_enqueue_waits_for_the_open_transaction_that_holds_its_key(
    store_url: str, postgres_url: str, real: Ledger, opened: Opener, end: str
) -> None:
    real.enqueue("warm", dedupe_key="other")
    rival_ledger = opened(store_url)
    with callers_connection(store_url, postgres_url) as connection, ThreadPoolExecutor(1) as pool:
        first = real.enqueue("once", {"by": "first"}, dedupe_key="key", connection=connection)
        assert first.is_new
        rival: Future[Job] = pool.submit(rival_ledger.enqueue, "once", {"by": "rival"}, dedupe_key="key")
        wait_until(has_to_wait(store_url, postgres_url), what="the rival waits")
        assert not rival.done()
        connection.execute(end)
        second = rival.result(30)

    if end == "COMMIT":
        assert (second.id, second.is_new, second.args) == (first.id, False, {"by": "first"})
    else:
        assert (second.is_new, second.args) == (True, {"by": "rival"})
        assert real.get(second.id).args == {"by": "rival"}
    assert len(real.list(kind="once")) == 1
    assert problems(real) == []


def test_an_enqueue_succeeds_after_a_wait_longer_than_the_lock_timeout(postgres_url: str, pg_url: str, opened: Opener) -> None:
    ledger, rival_ledger = opened(pg_url), opened(pg_url)
    rival_ledger.enqueue("warm")
    tries = threading.Semaphore(0)
    transact = rival_ledger._store.transact

    def counted(*arguments: Any) -> Any:
        tries.release()
        return transact(*arguments)

    rival_ledger._store.transact = counted  # type: ignore[assignment, method-assign]
    with psycopg.connect(postgres_url) as connection, ThreadPoolExecutor(1) as pool:
        first = ledger.enqueue("once", dedupe_key="key", connection=connection)
        rival = pool.submit(rival_ledger.enqueue, "once", dedupe_key="key")
        # The second attempt begins when the first has timed out.
        assert tries.acquire(timeout=30)
        assert tries.acquire(timeout=30)
        connection.commit()
        assert rival.result(30).id == first.id


def test_other_keys_do_not_wait_for_a_locked_key(postgres_url: str, pg_url: str, opened: Opener) -> None:
    ledger = opened(pg_url)
    ledger.enqueue("warm", dedupe_key="warm")
    with psycopg.connect(postgres_url) as connection, ThreadPoolExecutor(2) as pool:
        first = ledger.enqueue("once", dedupe_key="held up", connection=connection)
        rival = pool.submit(ledger.enqueue, "once", dedupe_key="held up")
        wait_until(has_to_wait(pg_url, postgres_url), what="the rival waits")
        at = time.monotonic()
        other = pool.submit(ledger.enqueue, "once", dedupe_key="free")
        try:
            assert other.result(30).is_new
            assert time.monotonic() - at < 5
        finally:
            connection.commit()
        assert rival.result(30).id == first.id


def test_a_key_whose_job_ends_during_the_enqueue_is_taken_again(pg_url: str, opened: Opener) -> None:
    """The enqueue finds the key taken. Before it reads the job of the key, that job ends."""
    ledger, other = opened(pg_url), opened(pg_url)
    winner = other.enqueue("once", dedupe_key="key")
    run = _session_class(ledger)._run

    def racing(session: Any, name: str, params: Any = None) -> Any:
        rows = run(session, name, params)
        if name == "enqueue_keyed" and not rows:
            other.cancel(winner.id, hard=True)
        return rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_session_class(ledger), "_run", racing)
        loser = ledger.enqueue("once", dedupe_key="key")

    assert loser.is_new
    assert loser.id != winner.id
    assert [job.status for job in ledger.list()] == ["cancelled", "queued"]


def _session_class(ledger: Ledger) -> Any:
    return ledger._store.read(type)
