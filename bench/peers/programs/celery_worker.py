"""Celery: a process that fetches and, by default, as many as there are CPUs that run what it hands them."""

import multiprocessing
import time
from collections.abc import Callable

from celery import Celery, Task
from celery.signals import worker_ready

from bench.peers.programs.messages import HOLD_SECONDS, Asked, main, orders, say

PREFETCH_MULTIPLIER = 128
"""The "Optimizing" page, for many short tasks, where throughput matters."""


def counting(jobs: int) -> Callable[[], None]:
    """Like the one for a single process, but shared by all that are forked off."""
    number = multiprocessing.Value("q", 0)

    def ran() -> None:
        with number.get_lock():
            number.value += 1
            last = number.value == jobs
        if last:
            say("ran")

    return ran


def made(asked: Asked) -> tuple[Celery, dict[str, Task]]:
    app = Celery("bench", broker=asked.place)
    app.conf.broker_connection_retry_on_startup = True
    if asked.tuned:
        app.conf.worker_prefetch_multiplier = PREFETCH_MULTIPLIER
    ran = counting(asked.jobs)

    @app.task(name="noop")
    def noop() -> None:
        ran()

    @app.task(name="tell")
    def tell() -> None:
        say("began")

    # Acknowledged when it ends: by default it would be gone with its worker.
    @app.task(name="hold", acks_late=True)
    def hold() -> None:
        say("began")
        time.sleep(HOLD_SECONDS)

    return app, {"noop": noop, "tell": tell, "hold": hold}


def install(asked: Asked) -> None:
    app, _ = made(asked)
    with app.connection_for_write() as connection:
        connection.connect()


def fill(asked: Asked) -> None:
    app, tasks = made(asked)
    with app.producer_or_acquire() as producer:
        for _ in range(asked.jobs):
            tasks["noop"].apply_async(producer=producer)


def send(asked: Asked) -> None:
    app, tasks = made(asked)
    with app.producer_or_acquire() as producer:
        for kind in orders():
            tasks[kind].apply_async(producer=producer)


def work(asked: Asked) -> None:
    app, _ = made(asked)
    worker_ready.connect(lambda **_: say("ready"), weak=False)
    app.worker_main(["worker", "--loglevel", "ERROR"])


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
