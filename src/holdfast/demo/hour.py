"""What `holdfast demo --serve` shows beside its own jobs: an hour of made-up history, and jobs while the dashboard is open."""

import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from types import TracebackType
from typing import Any, Self

import holdfast
from holdfast import HoldfastError, Ledger
from holdfast.testing import ManualClock

KINDS = {"resize_image": "images", "send_mail": "mail", "index_page": "crawl"}
"""The kinds of the made-up jobs, each with its queue."""
SEED = 7
STEPS, STEP_SECONDS = 120, 30.0
FAILED_SHARE = 0.002
"""The share of attempts that fail. Those jobs succeed in a later attempt."""
LIVE_EVERY_SECONDS = 1.0
LIVE_JOBS_MAX = 3_600
"""A dashboard that is left open for longer gets no more jobs."""


def _items(random: Random, least: int, most: int) -> list[dict[str, Any]]:
    kinds = random.choices(list(KINDS), weights=[3, 2, 1], k=random.randint(least, most))
    return [{"kind": kind, "queue": KINDS[kind], "args": {"number": random.randrange(10_000)}} for kind in kinds]


def write_hour(url: str, workers: Sequence[str]) -> int:
    """Write an hour of jobs into a new ledger. The hour ends now. Return the number of jobs."""
    random = Random(SEED)  # noqa: S311 - each demo has the same hour
    clock = ManualClock(datetime.now(UTC) - timedelta(seconds=STEPS * STEP_SECONDS))
    count = 0
    with holdfast.open(url, clock=clock, actor="web") as ledger:
        for step in range(STEPS):
            count += len(ledger.enqueue_many(_items(random, 10 + step // 8, 25 + step // 6)))
            end = clock.monotonic() + STEP_SECONDS
            _run_some(ledger, clock, random, random.choice(workers))
            clock.advance(max(0.0, end - clock.monotonic()))
        clock.advance(1.0)
        _run_some(ledger, clock, random, workers[0], failed_share=0.0)
    return count


def _run_some(ledger: Ledger, clock: ManualClock, random: Random, worker: str, failed_share: float = FAILED_SHARE) -> None:
    """Let a worker run the jobs that wait. They take some seconds, half of them longer than the others."""
    clock.advance(random.uniform(0.01, 0.2))
    fences = [job.fence for job in ledger.claim(worker, list(KINDS.values()), incarnation="hour", limit=100, start=True)]
    half = (len(fences) + 1) // 2
    for part in (fences[:half], fences[half:]):
        clock.advance(random.uniform(0.3, 5.0))
        failed = [fence for fence in part if random.random() < failed_share]
        for fence in failed:
            ledger.fail(fence, {"type": "TimeoutError", "message": "no answer within 5 s"})
        ledger.complete_many([(fence, {"by": worker}) for fence in part if fence not in failed])


class LiveJobs:
    """A thread that enqueues some jobs each second, so that the dashboard has something to show."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-jobs", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        random = Random(SEED)  # noqa: S311 - made-up jobs
        count = 0
        while count < LIVE_JOBS_MAX and not self._stopping.wait(LIVE_EVERY_SECONDS):
            try:
                count += len(self._ledger.enqueue_many(_items(random, 1, 2)))
            except HoldfastError:
                return
