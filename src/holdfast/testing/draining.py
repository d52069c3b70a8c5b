"""Running an app's jobs in a test: one at a time, in the calling thread, by a worker's own rules."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.limits import SWEEP_MAX, check_integer
from holdfast.core.model import Status
from holdfast.errors import LimitExceeded, ValidationError
from holdfast.ledger import Job
from holdfast.testing.clock import ManualClock
from holdfast.testing.lone import LoneWorker

if TYPE_CHECKING:
    from holdfast.worker import App

RUNS_MAX = 10_000
"""With so many runs and no end in sight, jobs keep coming back."""
LIMIT_MAX = 1_000_000_000
NAMED_MAX = 5
"""How many kinds are named that do."""


class Run(NamedTuple):
    """One attempt, and the status of its job right after it: queued, or stalled by a check, where it will be tried again."""

    job_id: int
    kind: str
    status: Status


class Drained(NamedTuple):
    """What a drain has run, in order, and what handlers raised meanwhile."""

    runs: tuple[Run, ...]
    errors: tuple[BaseException, ...]

    @property
    def counts(self) -> dict[str, int]:
        """How many runs ended in each status."""
        return dict(Counter(run.status.value for run in self.runs))


def drain(
    app: "App",
    *,
    queues: Sequence[str] | None = None,
    limit: int | None = None,
    until: Callable[[], object] | datetime | None = None,
    advance: bool = False,
    raise_errors: bool = False,
) -> Drained:
    """Run what is ready, and what becomes ready by that, until nothing is.

    In claim order over `queues` (by default all that have handlers, by name), one job at a time, in this thread, whatever a
    handler's isolation; async handlers on a loop of its own. The ledger is swept whenever nothing is ready.
    With `advance`, the app's ManualClock goes on to whatever waits for a delay or a backoff.
    It stops early after `limit` runs, or after one when `until()` is true. An `until` that is a moment is how far `advance` goes.
    Without a `limit`, 10,000 runs are an error that names the kinds which keep coming back.
    With `raise_errors`, the first error of a handler is raised here once it is recorded.
    """
    with Drain(app, queues, until, _clock(app) if advance else None, raise_errors) as made:
        return made.go(None if limit is None else check_integer("limit", limit, 0, LIMIT_MAX))


def _clock(app: "App") -> ManualClock:
    if not isinstance(app.clock, ManualClock):
        raise ValidationError("advance=True needs an app whose clock is a ManualClock", field="advance")
    return app.clock


class Drain:
    def __init__(
        self,
        app: "App",
        queues: Sequence[str] | None,
        until: Callable[[], object] | datetime | None,
        clock: ManualClock | None,
        raise_errors: bool,
    ) -> None:
        self._worker = LoneWorker(app, queues)
        self._ledger = app.ledger
        self._enough = until if callable(until) else _never
        self._end = until if isinstance(until, datetime) else None
        self._clock = clock
        self._raise_errors = raise_errors
        self._runs: list[Run] = []

    def __enter__(self) -> "Drain":
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    def go(self, limit: int | None) -> Drained:
        while limit is None or len(self._runs) < limit:
            job = self._worker.claim()
            if job is not None:
                self._check_end(limit)
                self._run(job)
                if self._enough():
                    break
            elif not (self._ledger.sweep(limit=SWEEP_MAX) or self._pass_time()):
                break
        return Drained(tuple(self._runs), tuple(self._worker.errors))

    def _run(self, job: Job) -> None:
        self._worker.run(job)
        self._runs.append(Run(job.id, job.kind, self._ledger.get(job.id).status))
        if self._raise_errors and self._worker.errors:
            raise self._worker.errors[0]

    def _pass_time(self) -> bool:
        """On to the next job that is ready some day; False where there is none, or none soon enough."""
        if self._clock is None:
            return False
        wait = self._worker.until_ready()
        # What is ready and was not claimed is somebody else's.
        if not wait:
            return False
        if self._end is not None and wait > (self._end - self._clock.now()).total_seconds():
            return False
        self._clock.advance(wait)
        return True

    def _check_end(self, limit: int | None) -> None:
        if limit is None and len(self._runs) >= RUNS_MAX:
            counted = Counter(run.kind for run in self._runs).most_common(NAMED_MAX)
            busiest = ", ".join(f"{kind} ({count:,})" for kind, count in counted)
            raise LimitExceeded(f"still not done after {RUNS_MAX:,} runs: {busiest}", limit=RUNS_MAX)


def _never() -> bool:
    return False
