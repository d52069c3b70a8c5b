"""Handlers that a test calls directly."""

import asyncio

import pytest

from holdfast import App, AsyncContext, Context
from holdfast.errors import JobCancelled, LeaseConflictError, LimitExceeded, ValidationError
from holdfast.testing import FakeAsyncContext, FakeContext

app = App("sqlite:///never.db")


@app.handler
def add(a: int, b: int = 1) -> int:
    return a + b


@app.handler
def pages(job: Context, count: int) -> int:
    start = (job.restored or {"page": 0})["page"]
    job.undo(add, a=count)
    for page in range(start, count):
        with job.may_proceed():
            job.progress(page, stage="reading")
        job.checkpoint({"page": page + 1})
    job.options(priority=3).enqueue(add, 1, b=2)
    job.request_assist()
    return count - start


@app.handler
async def waits(job: AsyncContext, n: int) -> int:
    await job.beat(progress=n)
    await job.checkpoint(n)
    child = await job.enqueue(add, a=n)
    other = await job.options(queue="q").enqueue("anything", x=1)
    return child.id + other.id


def test_reports_of_a_handler_are_kept_for_the_test() -> None:
    job = FakeContext(attempt=2, checkpoint={"page": 1}, kind="pages", args={"count": 3})
    assert pages(job, 3) == 2
    assert job.told == [{"stage": "reading", "progress": 1}, {"stage": "reading", "progress": 2}]
    assert (job.checkpoints, job.restored) == ([{"page": 2}, {"page": 3}], {"page": 3})
    assert job.undo_steps == [("add", {"a": 3, "b": 1}, {})]
    assert job.enqueued == [("add", {"a": 1, "b": 2}, {"priority": 3})]
    assert (job.assist_requested, job.job.attempt, job.job.args) == (True, 2, {"count": 3})


def test_an_async_handler_gets_a_context() -> None:
    job = FakeAsyncContext(job_id=7)
    assert asyncio.run(waits(job, 4)) == 8 + 9
    assert (job.told, job.checkpoints) == ([{"progress": 4}], [4])
    assert job.enqueued == [("add", {"a": 4, "b": 1}, {}), ("anything", {"x": 1}, {"queue": "q"})]


def test_the_test_can_request_a_stop() -> None:
    job = FakeContext()
    assert job.cancelled is False
    job.cancel()
    with pytest.raises(JobCancelled):
        pages(job, 3)
    lost = FakeContext()
    lost.mark_lost()
    with pytest.raises(LeaseConflictError):
        lost.may_proceed()


def test_values_that_the_ledger_refuses_are_refused_in_tests() -> None:
    job = FakeContext()
    with pytest.raises(ValidationError):
        job.checkpoint({1})
    with pytest.raises(ValidationError):
        job.enqueue(add, a="one")  # type: ignore[call-overload]
    with pytest.raises(ValidationError):
        job.undo(lambda: None)
    with pytest.raises(LimitExceeded):
        FakeContext(attempt=0)
