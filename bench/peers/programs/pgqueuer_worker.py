"""PgQueuer: async entrypoints on asyncpg, jobs fetched and finished in batches."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.peers.programs.messages import HOLD_SECONDS, Asked, counting, main, orders, say

BATCH = 1_000
TUNED_BATCH = 500
POOL = 4
"""Its performance guide: larger batches for short jobs, a pool of connections, its autovacuum settings. All stays logged."""


def run(work: Coroutine[Any, Any, None]) -> None:
    """On the loop that its own command line uses."""
    uvloop.run(work)


def install(asked: Asked) -> None:
    async def make() -> None:
        queries = Queries(AsyncpgDriver(await asyncpg.connect(asked.place)))
        await queries.install()
        if asked.tuned:
            await queries.optimize_autovacuum()

    run(make())


def fill(asked: Asked) -> None:
    async def enqueue() -> None:
        queries = Queries(AsyncpgDriver(await asyncpg.connect(asked.place)))
        for start in range(0, asked.jobs, BATCH):
            size = min(BATCH, asked.jobs - start)
            await queries.enqueue(["noop"] * size, [b"x"] * size, [0] * size)

    run(enqueue())


def send(asked: Asked) -> None:
    async def enqueue() -> None:
        queries = Queries(AsyncpgDriver(await asyncpg.connect(asked.place)))
        for kind in orders():
            await queries.enqueue(kind, b"x")

    run(enqueue())


async def connected(asked: Asked) -> PgQueuer:
    """One connection by default; tuned, a pool, so that finishing does not wait for fetching."""
    if not asked.tuned:
        return PgQueuer(AsyncpgDriver(await asyncpg.connect(asked.place)))
    return PgQueuer(AsyncpgPoolDriver(await asyncpg.create_pool(asked.place, min_size=POOL, max_size=POOL)))


def work(asked: Asked) -> None:
    ran = counting(asked.jobs)

    async def serve() -> None:
        queue = await connected(asked)

        @queue.entrypoint("noop")
        async def noop(job: Job) -> None:
            ran()

        @queue.entrypoint("tell")
        async def tell(job: Job) -> None:
            say("began")

        @queue.entrypoint("hold")
        async def hold(job: Job) -> None:
            say("began")
            await asyncio.sleep(HOLD_SECONDS)

        say("ready")
        await queue.run(**({"batch_size": TUNED_BATCH} if asked.tuned else {}))

    run(serve())


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
