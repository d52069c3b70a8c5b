"""Through a real PgBouncer in transaction mode: every transaction may run in another session of the server."""

import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

import holdfast
from holdfast import Ledger, Unavailable
from holdfast.errors import ValidationError
from holdfast.store.postgres import PostgresStore
from holdfast.store.postgres.wakeup import NotificationListener
from holdfast.testing import ManualClock
from tests.integration.conftest import Opener
from tests.support.histories import all_jobs, problems
from tests.support.waiting import wait_until
from tests.worker.fleet import Fleet
from tools.pgbouncer import PgBouncer
from tools.pgserver import PostgresServer


@pytest.fixture
def bouncer(pg_server: PostgresServer) -> Iterator[PgBouncer]:
    with PgBouncer.create(pg_server.port, pool_size=2) as bouncer:
        yield bouncer


@pytest.fixture
def url(bouncer: PgBouncer, pg_url: str) -> str:
    """An empty store through PgBouncer."""
    return f"{bouncer.url}?{urlsplit(pg_url).query}"


def store_of(ledger: Ledger) -> PostgresStore:
    assert isinstance(ledger._store, PostgresStore)
    return ledger._store


def test_a_pooler_is_detected_unless_the_url_says_otherwise(url: str, pg_url: str, opened: Opener) -> None:
    assert [store_of(opened(one))._pooled for one in (url, f"{url}&pooled=0", pg_url, f"{pg_url}&pooled=1")] == [
        True,
        False,
        False,
        True,
    ]
    assert {finding.code: finding.severity for finding in opened(url).diagnose().findings}["pooler"] == "note"
    assert "pooler" not in {finding.code for finding in opened(pg_url).diagnose().findings}
    for wrong in ("pooled=2", "listen=a/b", "listen=a%40b"):
        with pytest.raises(ValidationError):
            opened(f"{url}&{wrong}")


def test_many_threads_share_two_sessions(url: str, opened: Opener) -> None:
    ledgers = [opened(url) for _ in range(3)]
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        ledger = ledgers[number % len(ledgers)]
        try:
            for round_ in range(8):
                ledger.enqueue("k", {"round": round_}, dedupe_key=f"{number} {round_}", request_id=f"r {number} {round_}")
                for job in ledger.claim(f"w-{number}", start=True):
                    ledger.heartbeat(job.fence, progress=1)
                    ledger.complete(job.fence, {"round": round_})
        except BaseException as error:  # noqa: BLE001 - reported to the test
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    # A claim passes over a job that another claim has just locked, so the last one may be left.
    for job in ledgers[0].claim("w-last", limit=6, start=True):
        ledgers[0].complete(job.fence)
    assert ledgers[0].counts()["default"] == {"succeeded": 48}
    assert sum(event.type == "succeeded" for event in ledgers[0].follow(timeout=0)) == 48
    assert problems(ledgers[0]) == []


def test_jobs_are_enqueued_in_the_callers_transaction(url: str, bouncer: PgBouncer, opened: Opener) -> None:
    """Run often enough that the driver prepares the statement, on connections that share two sessions."""
    ledger = opened(url)
    with psycopg.connect(bouncer.url) as one, psycopg.connect(bouncer.url) as other:
        for number in range(8):
            for connection in (one, other):
                before = connection.prepare_threshold
                ledger.enqueue("k", {"n": number}, connection=connection)
                ledger.enqueue_many([{"kind": "k"}], connection=connection)
                assert connection.prepare_threshold == before
            one.commit()
            other.rollback()
    assert len(list(all_jobs(ledger))) == 16


def test_a_sweep_and_the_migrations_work(url: str, opened: Opener, clock: ManualClock) -> None:
    ledger = opened(url, clock=clock)
    job = ledger.enqueue("k")
    ledger.claim("w", start=True)
    clock.advance(3600)
    ledger.sweep()
    assert ledger.get(job.id).status != "running"
    assert ledger.prune(jobs_before=ledger.now()) is not None
    assert store_of(ledger).schema.applied
    assert not store_of(opened(url)).schema.applied


def test_waiters_poll_or_listen_at_the_server(url: str, pg_server: PostgresServer, opened: Opener) -> None:
    polling = store_of(opened(url)).waiter(events=True)
    assert isinstance(polling, NotificationListener) and polling._connection is None
    assert polling.wait(60)
    ledger = opened(f"{url}&listen={pg_server.host}:{pg_server.port}")
    listening = store_of(ledger).waiter(events=True)
    assert isinstance(listening, NotificationListener) and listening._connection is not None
    assert listening._connection.info.port == pg_server.port
    ledger.enqueue("k")
    assert listening.wait(60)
    assert {finding.code: finding.severity for finding in ledger.diagnose().findings}["pooler"] == "well"
    for waiter in (polling, listening):
        waiter.close()


def test_workers_drain_a_queue_over_a_killed_pgbouncer(url: str, bouncer: PgBouncer, opened: Opener, tmp_path: Path) -> None:
    ledger, log = opened(url), tmp_path / "log"
    jobs = ledger.enqueue_many([{"kind": "count", "args": {"log": str(log), "n": n}} for n in range(200)])
    with Fleet(url) as fleet:
        for name in ("ant", "bee"):
            fleet.start(name)
        wait_until(lambda: log.exists() and len(log.read_text().splitlines()) > 20)
        bouncer.kill()
        with pytest.raises(Unavailable):
            ledger.counts()
        bouncer.start()
        wait_until(lambda: ledger.counts()["default"] == {"succeeded": 200}, seconds=60, what="all jobs are done")
        late = ledger.enqueue("count", {"log": str(log), "n": 200})
        wait_until(lambda: ledger.get(late.id).status == "succeeded", what="idle workers find new work")
    assert {ledger.get(job.id).attempt for job in jobs} == {1}
    assert problems(ledger) == []


def test_another_server_is_noticed_without_a_lost_connection(restartable_server: PostgresServer) -> None:
    with (
        restartable_server.standby() as standby,
        PgBouncer.create(restartable_server.port) as bouncer,
        holdfast.open(bouncer.url) as ledger,
    ):
        ledger.enqueue("k", {}, tier="known")
        store = store_of(ledger)
        before, memory = store._pool.identity, store._cache
        with psycopg.connect(restartable_server.url) as primary, psycopg.connect(standby.url, autocommit=True) as replica:
            [(written,)] = primary.execute("SELECT pg_current_wal_lsn()::text").fetchall()
            wait_until(lambda: replica.execute("SELECT 1 WHERE pg_last_wal_replay_lsn() >= %s", (written,)).fetchone())
        standby.promote()
        bouncer.lead_to(standby.port)
        wait_until(lambda: ledger.counts() and store._pool.identity != before, what="the other server is noticed")
        assert store._cache is not memory
        assert ledger.enqueue("k", {}, tier="new").tier == "new"
        with psycopg.connect(standby.url) as replica:
            assert replica.execute("SELECT count(*) FROM holdfast.jobs").fetchone() == (2,)
        assert problems(ledger) == []
