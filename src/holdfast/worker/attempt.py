"""One attempt, from its checks to its outcome."""

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from holdfast.core.model import Actor, FailureStage, Fence, Role, Status
from holdfast.errors import Conflict, FenceLost, HoldfastError, TransientError
from holdfast.ledger import Job
from holdfast.telemetry.logs import bind_job
from holdfast.telemetry.tracing import current_traceparent, is_loaded, job_span
from holdfast.worker.context import Context
from holdfast.worker.handlers import Handler
from holdfast.worker.judge import Verdict, judge
from holdfast.worker.settle import Settler
from holdfast.worker.shift import Shift, log
from holdfast.worker.signature import plain_result

TRIES = 5


class Attempts:
    """How a worker takes its jobs through their handlers, wherever those run."""

    def __init__(self, shift: Shift, settler: Settler) -> None:
        self._shift = shift
        self._settler = settler
        self.monotonic = shift.monotonic
        self._pid = os.getpid()

    def run(self, context: Context, call: Callable[[Context], Any] | None = None) -> None:
        """In this thread. `call` stands in for the handler's function where that runs elsewhere."""
        try:
            self._run(context, call)
        except BaseException:  # noqa: BLE001 - the thread has other jobs to run
            self._let_go(context)

    async def run_async(self, context: Context) -> None:
        """On the loop; what has to ask the ledger first does so beside it."""
        try:
            await self._run_async(context)
        except BaseException:  # noqa: BLE001 - likewise
            self._let_go(context)

    def _run(self, context: Context, call: Callable[[Context], Any] | None) -> None:
        args = self._prepare(context)
        if args is None:
            return
        handler = context.handler
        try:
            with self._about(context):
                if call is not None:
                    result = call(context)
                elif handler.signature.takes_context:
                    result = handler.function(context, **args)
                else:
                    result = handler.function(**args)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its job's outcome
            self._raised(context, error)
        else:
            self._returned(context, result, checked=call is not None)

    async def _run_async(self, context: Context) -> None:
        checked = context.job.status is Status.CLAIMED
        args = await self._shift.beside(self._prepare, context) if checked else self._prepare(context)
        if args is None:
            return
        handler = context.handler
        try:
            with self._about(context):
                if handler.signature.takes_context:
                    result = await handler.function(context, **args)
                else:
                    result = await handler.function(**args)
        except BaseException as error:  # noqa: BLE001 - likewise
            self._raised(context, error)
        else:
            self._returned(context, result)

    def _about(self, context: Context) -> AbstractContextManager[Any]:
        """Around the handler: what is logged and traced within is this job's."""
        return _traced(context, self._shift.name) if is_loaded() else bind_job(context.job, self._shift.name)

    # Before

    def _prepare(self, context: Context) -> dict[str, Any] | None:
        """The arguments, once user code may begin; None where it may not."""
        handler: Handler = context.handler
        if context.lost or context.abandoned:
            self._shift.forget(context)
            return None
        record = context.job.record
        if record.status is Status.CLAIMED:
            if handler.timeout_s is not None:
                context.deadline = self._shift.monotonic() + handler.timeout_s
            if not self._start(context, handler):
                return None
        context.began = now = self._shift.monotonic()
        if handler.timeout_s is not None:
            context.deadline = now + handler.timeout_s
        try:
            return handler.signature.read(record.args)
        except BaseException as error:  # noqa: BLE001 - types of arguments may have code of their own
            self._settler.failed(context, error, FailureStage.INPUT)
            return None

    def _start(self, context: Context, handler: Handler) -> bool:
        """Run the checks, then say that user code begins."""
        try:
            for check in handler.checks:
                if check(context) is False:
                    raise TransientError(f"{getattr(check, '__qualname__', check)} said no")
        except BaseException as error:  # noqa: BLE001 - whatever a check raises keeps the job from starting
            if not context.timed_out:
                self._refuse(context, judge(error, handler.rules, FailureStage.INPUT))
            return False
        if context.timed_out:
            return False
        sent = self._shift.monotonic()
        try:
            begun = self._shift.ledger.start(context.fence)
        except HoldfastError as error:
            context.heard(error, 0)
            self._settler.abandon_start(context, error)
            return False
        context.begun(begun, sent)
        self._shift.note_started([context])
        return True

    def _refuse(self, context: Context, verdict: Verdict) -> None:
        """It has not started, so it cannot fail: it is stalled, to be tried again after its backoff, or put aside."""
        if verdict.retryable:
            self._settler.stall(context, verdict)
        else:
            self._settler.hand(context, self._put_aside, verdict=verdict)

    def _put_aside(self, fence: Fence, *, verdict: Verdict, request_id: str) -> Job:
        """Dead-letter a claimed job in the system's name, if it is still this attempt's."""
        ledger = self._shift.ledger
        for number in range(1, TRIES + 1):
            job = ledger.get(fence.job_id)
            if job.attempt != fence.attempt or job.status is not Status.CLAIMED:
                raise FenceLost(f"job {job.id} has moved on", job_id=job.id)
            try:
                return ledger.dead_letter(
                    job.id,
                    reason_code=verdict.reason_code or "policy_violation",
                    failure_stage=verdict.failure_stage or FailureStage.INPUT,
                    error=verdict.error,
                    actor=Actor(Role.SYSTEM, self._shift.name),
                    expected_rev=job.rev,
                    request_id=f"{request_id}-{number}",
                )
            except Conflict:
                if number == TRIES:
                    raise
        raise AssertionError("unreachable")

    # After

    def _returned(self, context: Context, result: Any, *, checked: bool = False) -> None:
        """`checked` against its annotation elsewhere: in the child process that made it."""
        self._end_fork()
        self._conclude(context, result, checked=checked)

    def _raised(self, context: Context, error: BaseException) -> None:
        self._end_fork()
        if isinstance(error, MemoryError):
            # The frames of the handler keep what it allocated: without them there is memory to record the failure.
            traceback.clear_frames(error.__traceback__)
        self._settler.failed(context, error)

    def _end_fork(self) -> None:
        """End this process if it is a fork that a handler has made: the job is its parent's, and so are all others."""
        if os.getpid() != self._pid:
            os._exit(0)

    def _let_go(self, context: Context) -> None:
        """Stop beating for an attempt whose outcome could not be handed over, for want of memory or threads: its lease runs
        out."""
        self._shift.forget(context)
        log.exception("this outcome is lost: the job is tried again when its lease is over", extra={"job_id": context.job.id})

    def _conclude(self, context: Context, result: Any, *, checked: bool) -> None:
        handler: Handler = context.handler
        try:
            if result is not None:
                result = plain_result(result)
            if handler.check_result is not None and not checked:
                handler.check_result(result)
            handler.hooks.check(context, result)
        except BaseException as error:  # noqa: BLE001 - whatever a hook raises keeps the result from being recorded
            self._settler.failed(context, error, FailureStage.OUTPUT)
        else:
            self._settler.succeeded(context, result)


@contextmanager
def _traced(context: Context, worker: str) -> Iterator[None]:
    with job_span(context.job, worker):
        context.traceparent = current_traceparent()
        with bind_job(context.job, worker, context.traceparent):
            yield
