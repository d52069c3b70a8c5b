"""Procrastinate: async tasks on psycopg, a statement for every fetch and one for every finish."""

import asyncio

import procrastinate

from bench.peers.programs.messages import HOLD_SECONDS, Asked, counting, main, orders, say

BATCH = 1_000
CONCURRENCY = 30
"""Its worker option for asynchronous jobs side by side, one by default; the pool must be as large."""


def made(asked: Asked) -> procrastinate.App:
    pool = {"min_size": CONCURRENCY, "max_size": CONCURRENCY} if asked.tuned else {}
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=asked.place, **pool))
    ran = counting(asked.jobs)

    @app.task(name="noop")
    async def noop() -> None:
        ran()

    @app.task(name="tell")
    async def tell() -> None:
        say("began")

    @app.task(name="hold")
    async def hold() -> None:
        say("began")
        await asyncio.sleep(HOLD_SECONDS)

    return app


def install(asked: Asked) -> None:
    with made(asked).open() as app:
        app.schema_manager.apply_schema()


def fill(asked: Asked) -> None:
    with made(asked).open() as app:
        for start in range(0, asked.jobs, BATCH):
            app.tasks["noop"].batch_defer(*({} for _ in range(min(BATCH, asked.jobs - start))))


def send(asked: Asked) -> None:
    with made(asked).open() as app:
        for kind in orders():
            app.tasks[kind].defer()


def work(asked: Asked) -> None:
    async def run() -> None:
        async with made(asked).open_async() as app:
            say("ready")
            await app.run_worker_async(concurrency=CONCURRENCY if asked.tuned else 1)

    asyncio.run(run())


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
