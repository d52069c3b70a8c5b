"""Huey on SQLite: a consumer whose threads poll the file."""

import time

from huey import SqliteHuey
from huey.api import TaskWrapper

from bench.peers.programs.messages import HOLD_SECONDS, Asked, counting, main, orders, say

TUNED_CONSUMER = {"initial_delay": 0.01, "backoff": 1.0}
"""Its options against polls every 100 ms and, while nothing comes, ever more rarely."""


def made(asked: Asked) -> tuple[SqliteHuey, dict[str, TaskWrapper]]:
    """Tuned, it looks for no results: a job here has none. A job without a result leaves no trace either way."""
    huey = SqliteHuey("bench", filename=asked.place, **({"results": False} if asked.tuned else {}))
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
    """Opening is enough."""
    made(asked)


def fill(asked: Asked) -> None:
    """In one transaction: enqueuing is not what is measured."""
    huey, tasks = made(asked)
    rows = [(huey.name, huey.serialize_task(tasks["noop"].s()), 0) for _ in range(asked.jobs)]
    with huey.storage.db(commit=True) as cursor:
        cursor.executemany("INSERT INTO task (queue, data, priority) VALUES (?, ?, ?)", rows)


def send(asked: Asked) -> None:
    _, tasks = made(asked)
    for kind in orders():
        tasks[kind]()


def work(asked: Asked) -> None:
    huey, _ = made(asked)
    consumer = huey.create_consumer(**(TUNED_CONSUMER if asked.tuned else {}))
    say("ready")
    consumer.run()


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
