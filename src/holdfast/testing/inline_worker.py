"""Run an app's jobs in a test: one at a time, in the calling thread, like a worker."""

import asyncio
import contextlib
import inspect
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from holdfast.core.limits import SWEEP_MAX, check_integer
from holdfast.core.model import HELD, FailureStage, Phase, Status
from holdfast.errors import HoldfastError, JobCancelled, LimitExceeded, Unavailable, ValidationError
from holdfast.ledger import HeldJob, Ledger
from holdfast.ledger.base import without_validators
from holdfast.testing.clock import ManualClock
from holdfast.worker.attempt import AttemptRunner
from holdfast.worker.context import Context
from holdfast.worker.failures import ClassifiedError
from holdfast.worker.handlers import Handler
from holdfast.worker.heartbeats import heartbeat_seconds
from holdfast.worker.runtime import WorkerRuntime
from holdfast.worker.settlement import PendingOutcome, Settler
from holdfast.worker.worker import declare_handlers

if TYPE_CHECKING:
    from holdfast.worker import App


T = TypeVar("T")

WORKER_NAME = "drain"


class InlineRuntime(WorkerRuntime):
    """A runtime without a heartbeat thread. It sends progress and checks for a cancel when they are needed."""

    running: Context | None = None

    def wake_heartbeats(self) -> None:
        if self.running is not None and self.running.has_unsent:
            self.renew_overdue(self.running)

    def renew_overdue(self, context: Context) -> None:
        """Renew the lease, as a worker would have done in time."""
        with contextlib.suppress(HoldfastError):
            Context.beat(context)

    def poll_cancel(self, context: Context) -> None:
        job = self.ledger.get(context.job.id)
        if job.attempt != context.job.attempt or job.status not in {*HELD, Status.STALLED}:
            context.mark_lost()
        elif job.phase is Phase.ABORTING:
            context.cancel_requested = True

    async def run_in_thread(self, verb: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return verb(*args, **kwargs)


class InlineSettler(Settler):
    """Records outcomes in the calling thread, before it returns."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        super().__init__(runtime)
        self.errors: list[BaseException] = []

    def succeeded(self, context: Context, result: Any) -> None:
        if not self._expire_if_late(context):
            super().succeeded(context, result)
            while self._completed:
                self._complete([self._completed.popleft()], secrets.token_hex(8), 0.0)

    def failed(self, context: Context, error: BaseException, stage: FailureStage = FailureStage.EXEC) -> None:
        if not isinstance(error, JobCancelled):
            self.errors.append(error.__cause__ or error if isinstance(error, ClassifiedError) else error)
        if not self._expire_if_late(context):
            super().failed(context, error, stage)

    def _expire_if_late(self, context: Context) -> bool:
        """Time out an attempt that took too long, and return whether it did. Here that is checked when the attempt ends."""
        if context.deadline is None or self._runtime.monotonic() < context.deadline:
            return False
        self.timed_out(context)
        return True

    def _dispatch(self, pending: PendingOutcome) -> None:
        self._settle(pending)

    def _retry_later(self, seconds: float, work: Callable[[], object]) -> None:
        raise Unavailable("the ledger is out of reach, and a drain does not wait for it")


class InlineWorker:
    """Claims and runs one job at a time, on request."""

    def __init__(self, app: "App", queues: Sequence[str] | None) -> None:
        self._queues = sorted({handler.queue for handler in app.registry}) if queues is None else list(queues)
        self._runtime = InlineRuntime(without_validators(app.ledger), app.registry, WORKER_NAME, app.monotonic)
        served = self._runtime.serve(self._queues)
        if any(map(_is_async, app.registry)):
            _check_no_loop()
        self._kinds = [handler.kind for handler in served]
        self._settler = InlineSettler(self._runtime)
        self._attempts = AttemptRunner(self._runtime, self._settler)
        # A separate loop, so that the thread's own event loop is not replaced.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        declare_handlers(app.ledger, served, WORKER_NAME)

    @property
    def errors(self) -> list[BaseException]:
        """The exceptions of handlers, except JobCancelled."""
        return self._settler.errors

    def claim(self) -> HeldJob | None:
        held = self._runtime.ledger.claim(WORKER_NAME, self._queues, kinds=self._kinds)
        return held[0] if held else None

    def until_ready(self) -> float | None:
        return self._runtime.ledger.until_ready(self._queues, kinds=self._kinds)

    def run(self, job: HeldJob) -> None:
        """Run one attempt, from its checks to its outcome."""
        context = self._context(job)
        self._runtime.hold(context)
        self._runtime.running = context
        before = len(self.errors)
        try:
            if _is_async(context.handler):
                self._runner.get_loop().run_until_complete(self._attempts.run_async(context))
            elif context.handler.batch is not None:
                self._attempts.run_batch([context])
            else:
                self._attempts.run(context)
        finally:
            self._runtime.running = None
        for error in self.errors[before:]:
            # KeyboardInterrupt, and exceptions with which a test runner ends a test, must reach the caller.
            if not isinstance(error, Exception | SystemExit | asyncio.CancelledError):
                raise error

    def _context(self, job: HeldJob) -> Context:
        handler, policy, runtime = self._runtime.served[job.kind], job.record.policy, self._runtime
        assert policy is not None
        now, ttl = runtime.monotonic(), policy.lease_ttl_ms / 1_000
        return handler.context_type(job, handler, runtime, heartbeat_seconds(policy), ttl, now)

    def close(self) -> None:
        self._runner.close()


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler.function)


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ValidationError("drain would block the event loop: use `await asyncio.to_thread(drain, app)`")


RUNS_MAX = 10_000
"""The most runs of a drain without a limit. More mean that jobs keep being requeued."""
LIMIT_MAX = 1_000_000_000
NAMED_KINDS_MAX = 5
"""How many kinds the error message names."""


class Run(NamedTuple):
    """One attempt, and the status of its job right after it: queued, or stalled by a check, if it will be retried."""

    job_id: int
    kind: str
    status: Status


class Drained(NamedTuple):
    """The runs of a drain in order, and the exceptions that handlers raised."""

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
    """Run all ready jobs, and those that become ready by that, until none is left.

    Jobs run in claim order over `queues` (default: all queues with handlers, by name), one at a time, in this thread. The
    isolation of a handler is ignored, and a batch has one job. Async handlers run on a separate loop. The ledger is swept
    whenever no job is ready.
    With `advance`, the app's ManualClock is advanced to the next job that waits for a delay or a backoff.
    It stops early after `limit` runs, or when `until()` is true after a run. If `until` is a datetime, `advance` stops there.
    Without a `limit`, more than 10,000 runs raise LimitExceeded, which names the most frequent kinds.
    With `raise_errors`, the first exception of a handler is raised after it is recorded.
    """
    clock = _clock(app) if advance else None
    with contextlib.closing(InlineWorker(app, queues)) as worker:
        drain_run = DrainRun(worker, app.ledger, until, clock, raise_errors)
        return drain_run.run(None if limit is None else check_integer("limit", limit, 0, LIMIT_MAX))


def _clock(app: "App") -> ManualClock:
    if not isinstance(app.clock, ManualClock):
        raise ValidationError("advance=True needs an app whose clock is a ManualClock", field="advance")
    return app.clock


class DrainRun:
    def __init__(
        self,
        worker: InlineWorker,
        ledger: Ledger,
        until: Callable[[], object] | datetime | None,
        clock: ManualClock | None,
        raise_errors: bool,
    ) -> None:
        self._worker = worker
        self._ledger = ledger
        self._is_enough = until if callable(until) else lambda: False
        self._end = until if isinstance(until, datetime) else None
        self._clock = clock
        self._raise_errors = raise_errors
        self._runs: list[Run] = []

    def run(self, limit: int | None) -> Drained:
        while limit is None or len(self._runs) < limit:
            job = self._worker.claim()
            if job is not None:
                self._check_end(limit)
                self._run(job)
                if self._is_enough():
                    break
            elif not (self._ledger.sweep(limit=SWEEP_MAX) or self._pass_time()):
                break
        return Drained(tuple(self._runs), tuple(self._worker.errors))

    def _run(self, job: HeldJob) -> None:
        self._worker.run(job)
        self._runs.append(Run(job.id, job.kind, self._ledger.get(job.id).status))
        if self._raise_errors and self._worker.errors:
            raise self._worker.errors[0]

    def _pass_time(self) -> bool:
        """Advance the clock to the next delayed job. Return False if there is none, or only after `until`."""
        if self._clock is None:
            return False
        wait = self._worker.until_ready()
        # A job that is ready and was not claimed is not for this worker.
        if not wait:
            return False
        if self._end is not None and wait > (self._end - self._clock.now()).total_seconds():
            return False
        self._clock.advance(wait)
        return True

    def _check_end(self, limit: int | None) -> None:
        if limit is None and len(self._runs) >= RUNS_MAX:
            counted = Counter(run.kind for run in self._runs).most_common(NAMED_KINDS_MAX)
            busiest = ", ".join(f"{kind} ({count:,})" for kind, count in counted)
            raise LimitExceeded(f"still not done after {RUNS_MAX:,} runs: {busiest}", limit=RUNS_MAX)
