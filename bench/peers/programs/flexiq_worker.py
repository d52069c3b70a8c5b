"""FlexiQ on its default storage, SQLite: a Rust scheduler that calls Python handlers in threads."""

import time

from flexiq import Queue

from bench.peers.programs.messages import HOLD_SECONDS, Asked, counting, main, orders, say

BATCH = 1_000
TUNED = {"workers": 32, "scheduler_batch_size": 64, "scheduler_poll_interval_ms": 5}
"""More threads than cores, as its option for work that waits; against one claim a poll and 50 ms between two polls.

Its `push_dispatch` is left alone: on SQLite it made a backlog crawl at two jobs a second."""


def made(asked: Asked) -> Queue:
    queue = Queue(db_path=asked.place, **(TUNED if asked.tuned else {}))
    ran = counting(asked.jobs)

    @queue.task(name="noop")
    def noop() -> None:
        ran()

    @queue.task(name="tell")
    def tell() -> None:
        say("began")

    @queue.task(name="hold")
    def hold() -> None:
        say("began")
        time.sleep(HOLD_SECONDS)

    return queue


def install(asked: Asked) -> None:
    """Opening is enough."""
    made(asked)


def fill(asked: Asked) -> None:
    queue = made(asked)
    for start in range(0, asked.jobs, BATCH):
        queue.enqueue_many("noop", [()] * min(BATCH, asked.jobs - start))


def send(asked: Asked) -> None:
    queue = made(asked)
    for kind in orders():
        queue.enqueue(kind)


def work(asked: Asked) -> None:
    queue = made(asked)
    say("ready")
    queue.run_worker()


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
