"""A worker without threads: its parts, each doing at once what a worker does by and by."""

import asyncio
import contextlib
import inspect
import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.core.model import HELD, FailureStage, Phase, Status
from holdfast.errors import HoldfastError, JobCancelled, Unavailable, ValidationError
from holdfast.ledger import Job
from holdfast.ledger.desk import without_validators
from holdfast.worker.attempt import Attempts
from holdfast.worker.beats import period
from holdfast.worker.context import Context
from holdfast.worker.handlers import Handler
from holdfast.worker.judge import JudgedError
from holdfast.worker.settle import Handed, Settler
from holdfast.worker.shift import Shift
from holdfast.worker.worker import declare

if TYPE_CHECKING:
    from holdfast.worker import App

T = TypeVar("T")

NAME = "drain"


class LoneShift(Shift):
    """Nobody beats by the way: what a beat would tell or learn is told or asked when it matters."""

    running: Context | None = None

    def ring(self) -> None:
        if self.running is not None and self.running.has_news:
            self.overdue(self.running)

    def overdue(self, context: Context) -> None:
        """A worker would have renewed the lease all along."""
        with contextlib.suppress(HoldfastError):
            Context.beat(context)

    def look(self, context: Context) -> None:
        job = self.ledger.get(context.job.id)
        if job.attempt != context.job.attempt or job.status not in {*HELD, Status.STALLED}:
            context.lose()
        elif job.phase is Phase.ABORTING:
            context.asked_to_stop = True

    async def beside(self, verb: Callable[..., T], *args: Any, **given: Any) -> T:
        return verb(*args, **given)


class Direct(Settler):
    """Settles in the calling thread, before it returns."""

    def __init__(self, shift: Shift) -> None:
        super().__init__(shift)
        self.errors: list[BaseException] = []

    def succeeded(self, context: Context, result: Any) -> None:
        if not self._too_late(context):
            super().succeeded(context, result)
            while self._done:
                self._complete([self._done.popleft()], secrets.token_hex(8), 0.0)

    def failed(self, context: Context, error: BaseException, stage: FailureStage = FailureStage.EXEC) -> None:
        if not isinstance(error, JobCancelled):
            self.errors.append(error.__cause__ or error if isinstance(error, JudgedError) else error)
        if not self._too_late(context):
            super().failed(context, error, stage)

    def _too_late(self, context: Context) -> bool:
        """Whether the attempt took longer than it may: here that is noticed when it ends."""
        if context.deadline is None or self._shift.monotonic() < context.deadline:
            return False
        self.timed_out(context)
        return True

    def _begin(self, handed: Handed) -> None:
        self._settle(handed)

    def _later(self, seconds: float, work: Callable[[], object]) -> None:
        raise Unavailable("the ledger is out of reach, and a drain does not wait for it")


class LoneWorker:
    """Claims one job and runs it, when it is told to."""

    def __init__(self, app: "App", queues: Sequence[str] | None) -> None:
        self._queues = sorted({handler.queue for handler in app.registry}) if queues is None else list(queues)
        self._shift = LoneShift(without_validators(app.ledger), app.registry, NAME, app.monotonic)
        served = self._shift.serve(self._queues)
        if any(map(_is_async, app.registry)):
            _check_no_loop()
        self._kinds = [handler.kind for handler in served]
        self._settler = Direct(self._shift)
        self._attempts = Attempts(self._shift, self._settler)
        # A loop of its own: the thread's own one, if it has one, stays what it was.
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        declare(app.ledger, served, NAME)

    @property
    def errors(self) -> list[BaseException]:
        """What handlers raised, but for a cancel they were asked for."""
        return self._settler.errors

    def claim(self) -> Job | None:
        held = self._shift.ledger.claim(NAME, self._queues, kinds=self._kinds)
        return held[0] if held else None

    def until_ready(self) -> float | None:
        return self._shift.ledger.until_ready(self._queues, kinds=self._kinds)

    def run(self, job: Job) -> None:
        """One attempt, from its checks to its outcome."""
        context = self._context(job)
        self._shift.hold(context)
        self._shift.running = context
        before = len(self.errors)
        try:
            if _is_async(context.handler):
                self._runner.get_loop().run_until_complete(self._attempts.run_async(context))
            else:
                self._attempts.run(context)
        finally:
            self._shift.running = None
        for error in self.errors[before:]:
            # Ctrl-C, and what a test runner ends a test with, are not the job's affair alone.
            if not isinstance(error, Exception | SystemExit | asyncio.CancelledError):
                raise error

    def _context(self, job: Job) -> Context:
        handler, policy, shift = self._shift.served[job.kind], job.record.policy, self._shift
        assert policy is not None
        now, ttl = shift.monotonic(), policy.lease_ttl_ms / 1_000
        return handler.context_type(job, handler, shift, period(policy), ttl, now)

    def close(self) -> None:
        self._runner.close()


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler.function)


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ValidationError("drain waits, which an event loop must not: use `await asyncio.to_thread(drain, app)`")
