"""What a handler reports of its work never costs an attempt: numbers are rounded, and what cannot be read is left out."""

import logging
import math
from typing import Any

import psycopg
import pytest

from holdfast import App, AsyncContext, BatchContext, Context, Job, LeaseConflictError, Ledger
from holdfast.ledger import commit
from holdfast.testing import FakeContext, drain
from tests.support.waiting import wait_until
from tests.worker.conftest import Starter, ended
from tests.worker.test_gate import WorkerParts, parts, timed

__all__ = ["parts", "timed"]

UNREADABLE: list[Any] = [math.nan, math.inf, "half", True, [1]]


def progress_of(ledger: Ledger, job: Job) -> list[Any]:
    return [event.payload["progress"] for event in ledger.events(job.id, types=["heartbeat"]) if "progress" in event.payload]


def report(job: Context) -> None:
    for wrong in UNREADABLE:
        job.progress(wrong, stage="working")
    job.progress(None)
    job.progress(1, stage="x" * 300)
    job.progress(33.3)


def test_a_handler_may_report_any_number(app: App, start: Starter, caplog: pytest.LogCaptureFixture) -> None:
    @app.handler(attempts_max=1)
    def plain(job: Context) -> None:
        report(job)
        job.beat(progress="half", stage=7)  # type: ignore[arg-type]
        job.request_assist("please")  # type: ignore[arg-type]
        job.beat(progress=0.5)

    @app.handler(attempts_max=1)
    async def quick(job: AsyncContext) -> None:
        report(job)
        await job.beat(progress="half", stage=7)  # type: ignore[arg-type]
        await job.request_assist(1)  # type: ignore[arg-type]
        await job.beat(progress=0.5)

    @app.handler(attempts_max=1, batch=2)
    def many(jobs: list[BatchContext]) -> None:
        for job in jobs:
            report(job)
            job.beat(progress=0.5)

    jobs = [app.enqueue(plain), app.enqueue(quick), *app.enqueue_many(many, [{}, {}])]
    start()
    for job in jobs:
        found = ended(app, job)
        assert (found.status, found.attempt, found.progress, found.stage) == ("succeeded", 1, 50, "working")
        assert not found.assist_requested
        said = [
            record for record in caplog.records if record.__dict__.get("job_id") == job.id and record.levelno == logging.WARNING
        ]
        assert [record.getMessage() for record in said] == [
            "a report of a handler is left out: progress 'nan' is not a finite number"
        ]


def test_the_worker_of_a_test_reads_reports_in_the_same_way(app: App) -> None:
    @app.handler(attempts_max=1)
    def plain(job: Context) -> None:
        report(job)

    job = app.enqueue(plain)
    drain(app)
    assert (app.ledger.get(job.id).status, progress_of(app.ledger, job)[-1]) == ("succeeded", 33)
    fake = FakeContext()
    report(fake)
    fake.beat(progress=-3)
    assert fake.told[-3:] == [{"progress": 1}, {"progress": 33}, {"progress": 0}]


def test_a_beat_without_the_ledger_answers_as_the_newest_one(parts: WorkerParts) -> None:
    context = parts.hold()
    before = context.beat(progress=3)
    parts.ledger.close()
    assert context.beat(progress=4) == before
    context.request_assist()


def test_a_beat_after_the_loss_of_the_lease_is_refused(parts: WorkerParts) -> None:
    context = parts.hold()
    parts.ledger.cancel(context.job.id, hard=True)
    with pytest.raises(LeaseConflictError):
        context.beat(progress=4)


def test_a_report_that_finds_the_job_locked_is_sent_later(empty_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "PAUSES", commit.PAUSES[:3])  # instead of 5 s
    app = App(empty_schema)
    server, _, schema = empty_schema.partition("?schema=")
    with psycopg.connect(server) as other:

        @app.handler(attempts_max=1)
        def locked(job: Context) -> None:
            other.execute(f"SELECT FROM {schema}.jobs WHERE id = %s FOR UPDATE", (job.job.id,))
            job.beat(progress=0.5)
            other.rollback()
            wait_until(lambda: app.ledger.get(job.job.id).progress == 50)

        job = app.enqueue(locked)
        with app.worker() as worker:
            worker.start()
            found = ended(app, job)
    app.close()
    assert (found.status, found.attempt) == ("succeeded", 1)
