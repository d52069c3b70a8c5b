"""Workers under load are killed, frozen and restarted at random for a given time. Then every history is audited."""

import contextlib
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast import Ledger
from holdfast.errors import InvalidTransition, Unavailable
from tests.support.histories import all_events, all_jobs, count_jobs, problems
from tests.support.waiting import wait_until
from tests.worker.fleet import Fleet

WORKERS = 3
RATE = 60
"""Jobs offered a second."""
BACKLOG_MAX = 500
FROZEN_SECONDS = 2.5
"""Longer than the lease of the jobs."""
OUTCOMES = {"succeeded", "failed", "dead_lettered", "cancelled"}
KINDS = {"worked": "succeeded", "worked_apart": "succeeded", "flaky": "succeeded", "doomed": "failed"}
"""How a job of each kind ends if it is not cancelled."""


class Offer:
    """Enqueue jobs at a steady rate and cancel some of them. Calls without an answer are repeated with the same id."""

    def __init__(self, ledger: Ledger, log: Path, chance: random.Random) -> None:
        self._ledger, self._log, self._chance = ledger, str(log), chance
        self.kinds: dict[int, str] = {}
        self.cancelled: set[int] = set()

    def run(self, until: float) -> None:
        begun, number = time.monotonic(), 0
        while time.monotonic() < until:
            if number >= (time.monotonic() - begun) * RATE or self._backlog() > BACKLOG_MAX:
                time.sleep(0.02)
                continue
            number += 1
            kind = self._chance.choice([*KINDS, "worked"])
            seconds = self._chance.choice([0, 0, 0.05, 0.5])
            self.kinds[self._enqueue(kind, {"log": self._log, "seconds": seconds}, f"offer-{number}")] = kind
            if self._chance.random() < 0.05:
                self._cancel(self._chance.choice(list(self.kinds)))

    def _backlog(self) -> int:
        return sum(counts.get("queued", 0) for counts in self._ledger.counts().values())

    def _enqueue(self, kind: str, args: dict[str, object], request_id: str) -> int:
        while True:
            with contextlib.suppress(Unavailable):
                return self._ledger.enqueue(kind, args, request_id=request_id).id

    def _cancel(self, job_id: int) -> None:
        self.cancelled.add(job_id)  # also if the answer is lost
        with contextlib.suppress(InvalidTransition, Unavailable):
            self._ledger.cancel(job_id, hard=self._chance.random() < 0.5)


class Slot:
    """One worker that is started, ended at a random time in a random way, and started again."""

    def __init__(self, fleet: Fleet, name: str, chance: random.Random) -> None:
        self._fleet, self._name, self._chance = fleet, name, chance
        self.ends: Counter[str] = Counter()

    def run(self, until: float, over: threading.Event) -> None:
        turn = 0
        while time.monotonic() < until:
            turn += 1
            name = f"{self._name}-{turn}"
            self._fleet.start(name, threads=4, processes=2, shutdown_timeout=1)
            over.wait(self._chance.uniform(0.1, 2.0))
            how = self._chance.choice(["killed", "killed", "killed", "frozen", "stopped"])
            self.ends[how] += 1
            if how == "frozen":
                self._fleet.send(name, signal.SIGSTOP)
                over.wait(FROZEN_SECONDS)
                self._fleet.send(name, signal.SIGCONT)
                over.wait(self._chance.uniform(0.0, 0.5))
            if how == "stopped":
                self._fleet.send(name, signal.SIGTERM)
                assert self._fleet.wait(name) in (0, -signal.SIGTERM)  # the latter if it was just starting
            else:
                self._fleet.kill(name)


def test_workers_killed_at_random_lose_no_job_and_run_none_twice(
    real: Ledger, fleet: Fleet, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    seconds, seed = pytestconfig.getoption("--kill-seconds"), random.randrange(10**6)
    log = tmp_path / "log"
    log.touch()
    offer = Offer(real, log, random.Random(seed))
    slots = [Slot(fleet, f"w{number}", random.Random(seed + number + 1)) for number in range(WORKERS)]
    until, over = time.monotonic() + seconds, threading.Event()
    with ThreadPoolExecutor() as threads:
        running = [threads.submit(slot.run, until, over) for slot in slots]
        try:
            offer.run(until)
        finally:
            over.set()
        for one in running:
            one.result(120)
    for number in range(2):
        fleet.start(f"last-{number}", threads=8, processes=2)
    wait_until(lambda: all(job.finished_at is not None for job in all_jobs(real)), seconds=180, what="the end of every job")
    audit(real, offer, log)


def audit(ledger: Ledger, offer: Offer, log: Path) -> None:
    jobs = {job.id: job for job in all_jobs(ledger)}
    # No job is lost, and there is no other job.
    assert jobs.keys() == offer.kinds.keys()
    assert count_jobs(ledger) == len(jobs)
    assert problems(ledger) == []
    # Each job ends once, in the status of its kind.
    ended: defaultdict[int, list[str]] = defaultdict(list)
    types: Counter[str] = Counter()
    for event in all_events(ledger):
        types[event.type.value] += 1
        if event.type.value in OUTCOMES:
            ended[event.job_id].append(event.type.value)
    for id_, job in jobs.items():
        assert ended[id_] == [job.status.value], id_
        assert job.status.value == KINDS[offer.kinds[id_]] or (id_ in offer.cancelled and job.status == "cancelled"), id_
    # Workers were lost in the middle of jobs.
    assert types["stalled"] > 0
    # The recorded attempt of each succeeded job did the work.
    done = set(log.read_text().splitlines())
    assert [id_ for id_, job in jobs.items() if job.status == "succeeded" and f"{id_} {job.result}" not in done] == []
    assert all(job.result == job.attempt for job in jobs.values() if job.status == "succeeded")
