"""DBOS: durable workflows on a queue, enqueued by its client and run in threads."""

import threading
import time

from dbos import DBOS, DBOSClient
from sqlalchemy import create_engine

from bench.peers.programs.messages import HOLD_SECONDS, Asked, counting, main, orders, say

BATCH = 1_000
QUEUE = "bench"
NAME = "bench"
TUNED_POLL_SECONDS = 0.05
"""Against one second by default: how often a queue's worker looks."""


def launched(asked: Asked) -> None:
    """Two executors need different ids and the same version, so that either may run a job."""
    DBOS(
        config={
            "name": NAME,
            "system_database_url": asked.place,
            "application_version": "1",
            "run_admin_server": False,
            "log_level": "ERROR",
            **({"sys_db_pool_size": 40} if asked.tuned else {}),
        }
    )
    ran = counting(asked.jobs)

    @DBOS.workflow(name="noop")
    def noop() -> None:
        ran()

    @DBOS.workflow(name="tell")
    def tell() -> None:
        say("began")

    @DBOS.workflow(name="hold")
    def hold() -> None:
        say("began")
        time.sleep(HOLD_SECONDS)

    DBOS.launch()
    DBOS.register_queue(QUEUE, **({"polling_interval_sec": TUNED_POLL_SECONDS} if asked.tuned else {}))


def install(asked: Asked) -> None:
    launched(asked)
    DBOS.destroy()


def client(asked: Asked) -> DBOSClient:
    return DBOSClient(system_database_url=asked.place, application_name=NAME)


def fill(asked: Asked) -> None:
    """In transactions of many: enqueuing is not what is measured."""
    sender, engine = client(asked), create_engine(asked.place.replace("postgresql:", "postgresql+psycopg:"))
    for start in range(0, asked.jobs, BATCH):
        with engine.begin() as connection:
            for _ in range(min(BATCH, asked.jobs - start)):
                sender.enqueue_in_transaction(connection, {"workflow_name": "noop", "queue_name": QUEUE})


def send(asked: Asked) -> None:
    sender = client(asked)
    for kind in orders():
        sender.enqueue({"workflow_name": kind, "queue_name": QUEUE})


def work(asked: Asked) -> None:
    launched(asked)
    say("ready")
    threading.Event().wait()


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
