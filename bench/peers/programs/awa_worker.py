"""Awa: a Rust worker that calls asynchronous Python handlers."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import awa

from bench.peers.programs.messages import HOLD_SECONDS, Asked, counting, main, orders, say

BATCH = 1_000
QUEUE = "default"
WORKERS = 50
"""Its own default for a queue; the Python face wants it named."""
TUNED = {"name": QUEUE, "max_workers": 500, "claimers": 2, "claim_batch_size": 500}
TUNED_START = {"poll_interval_ms": 20}
"""The settings its reference names for hot queues."""


@dataclass
class Noop:
    number: int


@dataclass
class Tell:
    number: int


@dataclass
class Hold:
    number: int


KINDS = {"tell": Tell, "hold": Hold}


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def install(asked: Asked) -> None:
    """The queue storage too, which the first worker of a new database would otherwise choose at its start."""

    async def make() -> None:
        async with awa.AsyncClient(asked.place) as client:
            await client.migrate()
            await client.install_queue_storage()

    run(make())


def fill(asked: Asked) -> None:
    async def enqueue() -> None:
        async with awa.AsyncClient(asked.place) as client:
            for start in range(0, asked.jobs, BATCH):
                size = min(BATCH, asked.jobs - start)
                await client.enqueue_many_copy([Noop(number) for number in range(size)], queue=QUEUE)

    run(enqueue())


def send(asked: Asked) -> None:
    async def enqueue() -> None:
        async with awa.AsyncClient(asked.place) as client:
            for kind in orders():
                await client.insert(KINDS[kind](0), queue=QUEUE)

    run(enqueue())


def work(asked: Asked) -> None:
    ran = counting(asked.jobs)

    async def serve() -> None:
        client = awa.AsyncClient(asked.place, **({"max_connections": 20} if asked.tuned else {}))

        @client.task(Noop, queue=QUEUE)
        async def noop(job: awa.Job) -> None:
            ran()

        @client.task(Tell, queue=QUEUE)
        async def tell(job: awa.Job) -> None:
            say("began")

        @client.task(Hold, queue=QUEUE)
        async def hold(job: awa.Job) -> None:
            say("began")
            await asyncio.sleep(HOLD_SECONDS)

        say("ready")
        await (client.start([TUNED], **TUNED_START) if asked.tuned else client.start([(QUEUE, WORKERS)]))
        await asyncio.Event().wait()

    run(serve())


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
