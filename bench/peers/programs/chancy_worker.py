"""Chancy: jobs named by their import path, run in a process pool by default and on the event loop when tuned."""

import asyncio
import logging
import os
import time
from collections.abc import Coroutine
from typing import Any

from chancy import Chancy, Job, Queue, Worker

from bench.peers.programs.messages import HOLD_SECONDS, Asked, counting, main, orders, say

HERE = "bench.peers.programs.chancy_worker"
TUNED = Queue("default", executor=Chancy.Executor.Async, concurrency=200, eager_polling=True)
"""Its documentation's executor for many short asynchronous jobs, and its flag for a queue that always has more."""

ran = counting(int(os.environ.get("BENCH_JOBS", "0")))


def noop() -> None: ...


def tell() -> None:
    say("began")


def hold() -> None:
    say("began")
    time.sleep(HOLD_SECONDS)


async def noop_tuned() -> None:
    ran()


async def tell_tuned() -> None:
    say("began")


async def hold_tuned() -> None:
    say("began")
    await asyncio.sleep(HOLD_SECONDS)


def named(kind: str, asked: Asked) -> Job:
    return Job(func=f"{HERE}.{kind}{'_tuned' if asked.tuned else ''}")


def chancy(asked: Asked) -> Chancy:
    return Chancy(asked.place, log=logging.getLogger("quiet"))


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def install(asked: Asked) -> None:
    async def make() -> None:
        async with chancy(asked) as app:
            await app.migrate()
            await app.declare(TUNED if asked.tuned else Queue("default"))

    run(make())


def fill(asked: Asked) -> None:
    async def enqueue() -> None:
        async with chancy(asked) as app:
            async for _ in app.push_many([named("noop", asked)] * asked.jobs):
                pass

    run(enqueue())


def send(asked: Asked) -> None:
    async def enqueue() -> None:
        async with chancy(asked) as app:
            for kind in orders():
                await app.push(named(kind, asked))

    run(enqueue())


def work(asked: Asked) -> None:
    async def serve() -> None:
        async with chancy(asked) as app:
            say("ready")
            async with Worker(app) as worker:
                await worker.wait_for_shutdown()

    # Handlers are found by their module's name, which gives another module than this program: the number has to reach it.
    os.environ["BENCH_JOBS"] = str(asked.jobs)
    run(serve())


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
