"""Holdfast's worker as it comes: every job's events recorded, beats, the sweeper and all."""

import threading

import holdfast
from bench.peers.programs.messages import HOLD_SECONDS, Asked, counting, main, orders, say
from holdfast import App, PolicyFields

BATCH = 500
TIGHTEST: PolicyFields = {"heartbeat_interval": 1, "missed_beats_max": 1, "lease_ttl": 1, "backoff_base": 0}


def url(asked: Asked) -> str:
    return asked.place if "://" in asked.place else f"sqlite:///{asked.place}"


def install(asked: Asked) -> None:
    """Opening is enough."""
    with holdfast.open(url(asked)):
        pass


def fill(asked: Asked) -> None:
    with holdfast.open(url(asked)) as ledger:
        for start in range(0, asked.jobs, BATCH):
            ledger.enqueue_many([{"kind": "noop"}] * min(BATCH, asked.jobs - start))


def send(asked: Asked) -> None:
    with holdfast.open(url(asked)) as ledger:
        for kind in orders():
            ledger.enqueue(kind)


def work(asked: Asked) -> None:
    app, ran = App(url(asked)), counting(asked.jobs)
    policy: PolicyFields = TIGHTEST if asked.config == "tight" else {}

    @app.handler()
    def noop() -> None:
        ran()

    @app.handler()
    def tell() -> None:
        say("began")

    @app.handler(policy=policy)
    def hold() -> None:
        say("began")
        threading.Event().wait(HOLD_SECONDS)

    with app.worker() as worker:
        say("ready")
        worker.run()


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
