"""Dramatiq: a thread that fetches and others that run what it hands them, in one process."""

import signal
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.peers.programs.messages import HOLD_SECONDS, Asked, counting, main, orders, say

PREFETCH = 1_000
"""Tuned, as the environment variable dramatiq_queue_prefetch of its reference would have it; 16 by default."""
IDLE_MS = 10
"""Tuned, as dramatiq_worker_timeout would have it: the longest pause between two looks; 1,000 by default."""


def made(asked: Asked) -> RedisBroker:
    broker = RedisBroker(url=asked.place)
    ran = counting(asked.jobs)

    @dramatiq.actor(broker=broker)
    def noop() -> None:
        ran()

    @dramatiq.actor(broker=broker)
    def tell() -> None:
        say("began")

    @dramatiq.actor(broker=broker)
    def hold() -> None:
        say("began")
        time.sleep(HOLD_SECONDS)

    return broker


def install(asked: Asked) -> None:
    made(asked).client.ping()


def fill(asked: Asked) -> None:
    noop = made(asked).get_actor("noop")
    for _ in range(asked.jobs):
        noop.send()


def send(asked: Asked) -> None:
    broker = made(asked)
    broker.client.ping()
    for kind in orders():
        broker.get_actor(kind).send()


def work(asked: Asked) -> None:
    broker = made(asked)
    broker.client.ping()
    worker = dramatiq.Worker(broker, worker_timeout=IDLE_MS) if asked.tuned else dramatiq.Worker(broker)
    if asked.tuned:
        worker.queue_prefetch = PREFETCH
    say("ready")
    worker.start()
    signal.pause()


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
