"""huey on Redis: a thread that takes one task after another, or a few of them."""

import time

from huey import RedisHuey
from huey.api import TaskWrapper

from bench.peers.programs.messages import HOLD_SECONDS, Asked, counting, main, orders, say

TUNED_WORKERS = 4
"""The "Consumer" page, for tasks that wait: more threads; the "API" page, for tasks without results: none kept."""


def made(asked: Asked) -> tuple[RedisHuey, dict[str, TaskWrapper]]:
    huey = RedisHuey("bench", url=asked.place, results=not asked.tuned)
    ran = counting(asked.jobs)

    @huey.task(name="noop")
    def noop() -> None:
        ran()

    @huey.task(name="tell")
    def tell() -> None:
        say("began")

    @huey.task(name="hold")
    def hold() -> None:
        say("began")
        time.sleep(HOLD_SECONDS)

    return huey, {"noop": noop, "tell": tell, "hold": hold}


def install(asked: Asked) -> None:
    made(asked)[0].pending_count()


def fill(asked: Asked) -> None:
    _, tasks = made(asked)
    for _ in range(asked.jobs):
        tasks["noop"]()


def send(asked: Asked) -> None:
    huey, tasks = made(asked)
    huey.pending_count()
    for kind in orders():
        tasks[kind]()


def work(asked: Asked) -> None:
    huey, _ = made(asked)
    huey.pending_count()
    consumer = huey.create_consumer(**({"workers": TUNED_WORKERS} if asked.tuned else {}))
    say("ready")
    consumer.run()


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
