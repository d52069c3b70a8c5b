"""Holdfast by its plain verbs: one thread claims while another completes; beats and sweeps come from a third."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import holdfast
from bench.peers.programs.telling import HOLD_SECONDS, Asked, counting, main, orders, say
from holdfast import Fence, Job, Ledger
from holdfast.store.base import Waiter

BATCH = 500
QUEUES = ["default"]
WAIT_SECONDS = 1.0
SWEEP_SECONDS = 1.0
BEAT_TICKS = 10
"""Sweeps between two beats: a beat every ten seconds, as the default policy asks."""


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


class Worker:
    """Runs what it holds one after another, in batches."""

    def __init__(self, ledger: Ledger, handlers: dict[str, Callable[[], None]]) -> None:
        self._ledger = ledger
        self._name = f"worker-{uuid4()}"
        self._handlers = handlers
        self._held: dict[Fence, None] = {}

    def run(self) -> None:
        threading.Thread(target=self._keep, daemon=True).start()
        waiter = self._ledger.waiter()
        with ThreadPoolExecutor(1) as lane:
            ahead = lane.submit(self._claim)
            while True:
                ahead = self._turn(lane, ahead) or lane.submit(self._claim_later, waiter)

    def _turn(self, lane: ThreadPoolExecutor, ahead: "Future[list[Job]]") -> "Future[list[Job]] | None":
        """Work off what was claimed while the next is being claimed. None if there was nothing."""
        jobs = ahead.result()
        if not jobs:
            return None
        following = lane.submit(self._claim)
        done: list[tuple[Fence, Any]] = []
        for job in jobs:
            assert job.fence is not None
            self._handlers[job.kind]()
            done.append((job.fence, None))
        self._ledger.complete_many(done)
        for fence, _ in done:
            self._held.pop(fence, None)
        return following

    def _claim(self) -> list[Job]:
        jobs = self._ledger.claim(self._name, QUEUES, limit=BATCH, start=True)
        self._held.update((job.fence, None) for job in jobs if job.fence is not None)
        return jobs

    def _claim_later(self, waiter: Waiter) -> list[Job]:
        """A bell that rang since the last look is still heard."""
        waiter.wait(WAIT_SECONDS)
        return self._claim()

    def _keep(self) -> None:
        """Beat for all that is held, and sweep."""
        pause, ticks = threading.Event(), 0
        while not pause.wait(SWEEP_SECONDS):
            ticks += 1
            if ticks % BEAT_TICKS == 0 and (fences := list(self._held)):
                self._ledger.heartbeat_many(fences)
            self._ledger.sweep()


def work(asked: Asked) -> None:
    def hold() -> None:
        say("began")
        threading.Event().wait(HOLD_SECONDS)

    with holdfast.open(url(asked)) as ledger:
        worker = Worker(ledger, {"noop": counting(asked.jobs), "tell": lambda: say("began"), "hold": hold})
        say("ready")
        worker.run()


if __name__ == "__main__":
    main({"install": install, "fill": fill, "send": send, "work": work})
