"""A user's program in which type checkers find nothing."""

import asyncio
from datetime import timedelta
from typing import assert_type

import holdfast
import holdfast.testing
from holdfast import App, AsyncContext, Beat, Change, Context, Event, Fence, HeldJob, Job, JobPage, PolicyFields

app = App("sqlite:///typed.db")
STEADY: PolicyFields = {"heartbeat_interval": "5s", "lease_ttl": 60, "attempts_max": 3}


@app.handler
def add(a: int, b: int = 1) -> int:
    return a + b


@app.handler(queue="crawl", lease_ttl="2m", attempts_max=3, priority=5, policy=STEADY, timeout=timedelta(minutes=1))
def fetch(job: Context, url: str) -> dict[str, int]:
    job.progress(50, stage="reading")
    assert_type(job.job.fence, Fence)
    child = job.enqueue(add, 1, b=2)
    assert_type(child, Job[int | None])
    job.options(depends_on=[child]).enqueue(add, a=3)
    return {url: 1}


@app.handler("mail")
async def send(job: AsyncContext, to: str) -> bool:
    child = await job.enqueue(add, a=1)
    assert_type(child.result, int | None)
    return bool(to)


@app.handler()
async def tidy() -> None:
    await asyncio.sleep(0)


async def use_with_await() -> None:
    assert_type(await app.aio.enqueue(add, 1), Job[int | None])
    assert_type((await app.aio.enqueue(fetch, url="u")).result, dict[str, int] | None)
    assert_type((await app.aio.enqueue(send, to="ada")).result, bool | None)
    await app.aio.enqueue("add", a=1, anything="goes")
    assert_type(await app.aio.options(priority=3, delay="5m").enqueue(add, a=1), Job[int | None])
    assert_type(await app.aio.enqueue_many(add, [{"a": 1}]), list[Job])
    async with holdfast.aio.open("sqlite:///typed.db", actor="me") as ledger:
        job = await ledger.enqueue("add", {"a": 1}, priority=1, policy={"attempts_max": 2})
        assert_type(job, Job)
        assert_type(await ledger.list(status="queued"), JobPage)
        [held] = await ledger.claim("w", start=True)
        assert_type(held, HeldJob)
        assert_type(await ledger.complete(held.fence), Change)
        assert_type((await ledger.claim_job(job.id, "w")).fence, Fence)
        async for event in ledger.follow(timeout=1):
            assert_type(event, Event)
    added = await app.aio.enqueue(add, 1)
    assert_type(await app.aio.ledger.wait(added, timeout=1), Job[int | None])
    assert_type(await app.aio.ledger.result(added, timeout=1), int)
    opened = await holdfast.aio.open("sqlite:///typed.db")
    await opened.close()


def use() -> None:
    assert_type(app.enqueue(add, 1).result, int | None)
    assert_type(app.enqueue(fetch, url="u").result, dict[str, int] | None)
    assert_type(app.enqueue(send, to="ada").result, bool | None)
    app.enqueue(tidy)
    app.enqueue("add", a=1, anything="goes")
    jobs = app.options(priority=3, delay="5m", dedupe_key="k", queue="other").enqueue(add, a=1)
    assert_type(jobs, Job[int | None])
    app.enqueue_many(add, [{"a": 1}, {"a": 2}])
    assert_type(app.ledger.wait(jobs, timeout=1), Job[int | None])
    assert_type(app.ledger.wait(jobs.id), Job)
    assert_type(app.ledger.result(jobs, timeout=1), int)
    assert_type(app.ledger.result(app.enqueue(fetch, url="u")), dict[str, int])
    anything: str = app.ledger.result(jobs.id)
    assert anything
    app.ledger.result(app.enqueue(tidy))
    fetch_again: Job = app.ledger.get(jobs.id)
    assert fetch_again.result["anything"]
    assert add(1, 2) == 3
    with app.worker(name="w", threads=4, shutdown_timeout="10s", keep_beats="never") as worker:
        worker.start()
    with holdfast.open("sqlite:///typed.db", actor="me", create=True) as ledger:
        ledger.enqueue("add", {"a": 1}, priority=1, policy={"attempts_max": 2}, on_dependency_failure="cancel")
        for held in ledger.claim("w", limit=2):
            assert_type(ledger.heartbeat(held.fence), Beat)
        assert_type(ledger.claim_job(jobs.id, "w"), HeldJob)
        assert_type(ledger.unanswered("w"), list[HeldJob])
        assert_type(ledger.get(jobs.id).fence, Fence | None)
    assert_type(holdfast.testing.FakeContext().job.fence, Fence)
