"""A worker that lost the answer to a claim finds the jobs it holds by that claim, and runs each once in the same attempt."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import App, Context, Job, PolicyFields
from holdfast.core.commands import ClaimNext
from holdfast.store.rows import ClaimedJobs
from holdfast.store.sqlite.session import SqliteSession
from tests.support.histories import problems
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until
from tests.worker.conftest import became, ended

CLAIM = b"FOR NO KEY UPDATE SKIP LOCKED"
"""Only claims have this in their text."""
WAITING_CLAIMS = """SELECT count(*) FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND query LIKE '%%picked AS%%' AND query LIKE %(schema)s"""
LONG: PolicyFields = {"heartbeat_interval": 600, "lease_ttl": 3_600}
"""With this policy a job is not requeued while a test runs."""


@pytest.fixture
def pg_url(empty_schema: str) -> str:
    return empty_schema


@pytest.fixture
def direct(pg_url: str) -> Iterator[App]:
    """An app without a proxy."""
    app = App(pg_url)
    yield app
    app.close()


@pytest.fixture
def cut_off(pg_url: str, direct: App, proxy: Proxy) -> Iterator[App]:
    """The same ledger through the proxy."""
    assert direct.ledger.counts() == {}
    app = App(proxy.url(pg_url))
    yield app
    app.close()


class Runs:
    """A handler that records its calls."""

    def __init__(self, app: App, **options: Any) -> None:
        self.of: list[int] = []
        self.free = threading.Event()
        self.free.set()

        @app.handler("work", policy=LONG, **options)
        def work(job: Context) -> int:
            self.of.append(job.job.id)
            self.free.wait(60)
            return job.job.attempt


def ran_once(app: App, jobs: list[Job], runs: Runs) -> None:
    """Check that each job was run once, in its first attempt, without a stall."""
    for job in jobs:
        assert ended(app, job).result == 1
        types = [event.type for event in app.ledger.events(job.id) if event.type != "heartbeat"]
        assert types == ["enqueued", "claimed", "started", "succeeded"]
    assert sorted(runs.of) == sorted(job.id for job in jobs)
    assert problems(app.ledger) == []


@pytest.mark.parametrize("then_gone", [False, True], ids=["one connection", "all connections"])
@pytest.mark.parametrize("checked", [False, True], ids=["started", "checked first"])
def test_on_postgres_a_lost_answer_to_a_claim_costs_no_attempt(
    cut_off: App, direct: App, proxy: Proxy, then_gone: bool, checked: bool
) -> None:
    runs = Runs(cut_off, checks=[lambda job: True] if checked else [])
    with cut_off.worker(name="w", shutdown_timeout=0) as worker:
        proxy.cut("after", then_gone=then_gone, statement=CLAIM)
        worker.start()
        jobs = direct.ledger.enqueue_many([{"kind": "work"}] * 3)
        assert proxy.was_cut.wait(30)
        if then_gone:
            proxy.come_back()
        ran_once(direct, jobs, runs)


def test_a_claim_that_commits_late_costs_no_attempt(
    cut_off: App, direct: App, proxy: Proxy, pg_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks while the claim waits for a lock.

    The worker finds no jobs of it and claims again before it commits.
    """
    monkeypatch.setattr("holdfast.store.postgres.connections.LOCK_MS", 60_000)
    server_url, _, schema = pg_url.partition("?schema=")
    runs = Runs(cut_off)
    with cut_off.worker(name="w", shutdown_timeout=0) as worker, psycopg.connect(server_url) as blocker:
        worker.start()
        jobs = direct.ledger.enqueue_many([{"kind": "work", "delay": 1}] * 3)
        blocker.execute(f"LOCK TABLE {schema}.jobs IN SHARE MODE")

        def waiting() -> int:
            with psycopg.connect(server_url) as connection:
                found = connection.execute(WAITING_CLAIMS, {"schema": f"%{schema}.%"}).fetchone()
            assert found is not None
            return int(found[0])

        wait_until(lambda: waiting() == 1)
        proxy.go_away()
        proxy.come_back()
        wait_until(lambda: waiting() == 2)
        blocker.rollback()
        ran_once(direct, jobs, runs)


def test_a_worker_that_stops_releases_the_jobs_of_a_lost_answer(
    cut_off: App, direct: App, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("holdfast.worker.claim_loop.RETRY_SECONDS", 600.0)
    runs = Runs(cut_off)
    job = direct.ledger.enqueue("work")  # before the start: the answer to an empty claim would be lost else
    with cut_off.worker(name="w", shutdown_timeout=0) as worker:
        proxy.cut("after", then_gone=True, statement=CLAIM)
        worker.start()
        assert proxy.was_cut.wait(30)
        wait_until(lambda: "claim: unavailable" in caplog.text)
        proxy.come_back()
        worker.stop()
    assert direct.ledger.get(job.id).status == "queued"
    assert [event.reason for event in direct.ledger.events(job.id, types=["stalled"])] == ["RELEASED"]
    assert runs.of == []


def test_a_kind_with_a_limit_keeps_it_beside_a_lost_answer(cut_off: App, direct: App, proxy: Proxy) -> None:
    runs = Runs(cut_off, concurrency=1)
    runs.free.clear()
    with cut_off.worker(name="w", shutdown_timeout=0) as worker:
        proxy.cut("after", statement=CLAIM)
        worker.start()
        jobs = direct.ledger.enqueue_many([{"kind": "work"}] * 2)
        became(direct, jobs[0], "running")
        assert proxy.was_cut.wait(30)
        wait_until(lambda: runs.of == [jobs[0].id])
        assert direct.ledger.get(jobs[1].id).status == "queued"
        runs.free.set()
        ran_once(direct, jobs, runs)


def test_on_sqlite_a_lost_answer_to_a_claim_costs_no_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is moved between the claim and its commit. The outcome is known when the file is back."""
    place, away = tmp_path / "holdfast.db", tmp_path / "away.db"
    app, was_cut, claim = App(f"sqlite:///{place}"), threading.Event(), SqliteSession.claim
    runs = Runs(app)

    def claim_and_lose(session: SqliteSession, command: ClaimNext) -> ClaimedJobs:
        found = claim(session, command)
        if found and not was_cut.is_set():
            place.rename(away)
            was_cut.set()
        return found

    with app.worker(name="w", shutdown_timeout=0) as worker:
        monkeypatch.setattr(SqliteSession, "claim", claim_and_lose)
        worker.start()
        jobs = app.ledger.enqueue_many([{"kind": "work"}] * 3)
        assert was_cut.wait(30)
        wait_until(lambda: worker.runtime.ledger.has_unanswered)
        away.rename(place)
        ran_once(app, jobs, runs)
    app.close()
