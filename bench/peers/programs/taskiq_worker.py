"""taskiq: async tasks out of a Redis stream, the broker of its Redis package that acknowledges."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import uvloop
from taskiq.api import run_receiver_task
from taskiq.decor import AsyncTaskiqDecoratedTask
from taskiq_redis import RedisStreamBroker

from bench.peers.programs.messages import HOLD_SECONDS, Asked, counting, main, orders, say

READ = 1_000
TUNED = {"max_async_tasks": 20, "max_prefetch": READ, "validate_params": False}
"""The command line's --max-async-tasks (every task that waits for its acknowledgement holds a connection, so fewer than
the 100 by default do better), --max-prefetch and --no-parse; uvloop, and reads as large, go with them."""


def made(asked: Asked) -> tuple[RedisStreamBroker, dict[str, AsyncTaskiqDecoratedTask[[], Any]]]:
    broker = RedisStreamBroker(asked.place, **({"xread_count": READ} if asked.tuned else {}))
    ran = counting(asked.jobs)

    @broker.task("noop")
    async def noop() -> None:
        ran()

    @broker.task("tell")
    async def tell() -> None:
        say("began")

    @broker.task("hold")
    async def hold() -> None:
        say("began")
        await asyncio.sleep(HOLD_SECONDS)

    return broker, {"noop": noop, "tell": tell, "hold": hold}


def run(asked: Asked, work: Coroutine[Any, Any, None]) -> None:
    (uvloop if asked.tuned else asyncio).run(work)


def install(asked: Asked) -> None:
    run(asked, made(asked)[0].startup())


def fill(asked: Asked) -> None:
    async def enqueue() -> None:
        broker, tasks = made(asked)
        await broker.startup()
        for _ in range(asked.jobs):
            await tasks["noop"].kiq()

    run(asked, enqueue())


def send(asked: Asked) -> None:
    async def enqueue() -> None:
        broker, tasks = made(asked)
        await broker.startup()
        for kind in orders():
            await tasks[kind].kiq()

    run(asked, enqueue())


def work(asked: Asked) -> None:
    async def serve() -> None:
        broker, _ = made(asked)
        await broker.startup()
        say("ready")
        await run_receiver_task(broker, **(TUNED if asked.tuned else {}))

    run(asked, serve())


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
