"""Run one attempt: checks, start, handler, outcome."""

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from holdfast.core.model import Actor, FailureStage, Fence, Role, Status
from holdfast.errors import Conflict, FenceLost, HoldfastError, PermanentError, TransientError
from holdfast.ledger import Job
from holdfast.telemetry.logs import JobFields, bind_job
from holdfast.telemetry.logs import current as current_fields
from holdfast.telemetry.tracing import current_traceparent, is_loaded, job_span
from holdfast.worker.context import Context
from holdfast.worker.failures import ClassifiedFailure, classify
from holdfast.worker.handlers import Handler
from holdfast.worker.runtime import WorkerRuntime, log
from holdfast.worker.settlement import Settler
from holdfast.worker.signature import to_plain_result

_forks = 0
"""How many forks lie between the first process and this one. Asking for the process id instead would be a system call."""


def _count_fork() -> None:
    global _forks  # noqa: PLW0603 - a fact about this process
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)

DEAD_LETTER_TRIES = 5
"""How often to try again if the job changes between reading and dead-lettering it."""


class AttemptRunner:
    """Run attempts in threads, on the event loop or in child processes, and pass their outcomes to the settler."""

    def __init__(self, runtime: WorkerRuntime, settler: Settler) -> None:
        self._runtime = runtime
        self._settler = settler
        self.monotonic = runtime.monotonic
        self._forks = _forks
        runtime.settle_result, runtime.settle_error = self._on_result, self._on_error

    def run(self, context: Context, call: Callable[[Context], Any] | None = None) -> None:
        """Run an attempt in this thread. `call` replaces the handler's function if that runs in another process."""
        try:
            self._run(context, call)
        except BaseException:  # noqa: BLE001 - the thread has other jobs to run
            self._drop_outcome(context)

    def run_batch(self, contexts: list[Context]) -> None:
        """Run a batch of attempts in this thread. Each has its own outcome."""
        try:
            self._run_batch(contexts)
        except BaseException:  # noqa: BLE001 - as in run
            for context in contexts:
                if not context.is_settling:
                    self._drop_outcome(context)

    def _run_batch(self, contexts: list[Context]) -> None:
        ready = [context for context in contexts if self._prepare(context) is not None]
        if not ready:
            return
        handler = ready[0].handler
        try:
            results = _batch_results(handler, ready, handler.function(ready))
        except BaseException as error:  # noqa: BLE001 - any exception is the outcome of the jobs that have none yet
            for context in ready:
                if not context.is_settling:
                    self._on_error(context, error)
            return
        for context, result in zip(ready, results, strict=True):
            if not context.is_settling:
                self._on_result(context, result)

    async def run_async(self, context: Context) -> None:
        """Run an attempt on the event loop. Checks and the start call the ledger, so they run in a thread."""
        try:
            await self._run_async(context)
        except BaseException:  # noqa: BLE001 - the loop has other jobs to run
            self._drop_outcome(context)

    def _run(self, context: Context, call: Callable[[Context], Any] | None) -> None:
        args = self._prepare(context)
        if args is None:
            return
        try:
            if is_loaded():
                with _traced_job(context, self._runtime.name):
                    result = context.handler.call(context, args) if call is None else call(context)
            else:
                # Without `with bind_job(…)`: that would take twice as long.
                fields = current_fields.set(JobFields(context.job, self._runtime.name))
                try:
                    result = context.handler.call(context, args) if call is None else call(context)
                finally:
                    current_fields.reset(fields)
        except BaseException as error:  # noqa: BLE001 - any exception of a handler is the outcome of its job
            self._on_error(context, error)
        else:
            self._on_result(context, result, checked=call is not None)

    async def _run_async(self, context: Context) -> None:
        has_checks = context.job.status is Status.CLAIMED
        args = await self._runtime.run_in_thread(self._prepare, context) if has_checks else self._prepare(context)
        if args is None:
            return
        try:
            with self._job_scope(context):
                result = await context.handler.call(context, args)
        except BaseException as error:  # noqa: BLE001 - as in _run
            self._on_error(context, error)
        else:
            self._on_result(context, result)

    def _job_scope(self, context: Context) -> AbstractContextManager[Any]:
        """Return a context manager that attaches the job to log lines and spans of the handler."""
        return _traced_job(context, self._runtime.name) if is_loaded() else bind_job(context.job, self._runtime.name)

    # Before the handler

    def _prepare(self, context: Context) -> dict[str, Any] | None:
        """Return the handler's arguments, or None if the handler must not run."""
        handler: Handler = context.handler
        if context.lost or context.abandoned:
            self._runtime.forget(context)
            return None
        if context.job.status is Status.CLAIMED:
            if handler.timeout_s is not None:
                context.deadline = self._runtime.monotonic() + handler.timeout_s
            if not self._start(context, handler):
                return None
        context.began = now = self._runtime.monotonic()
        if handler.timeout_s is not None:
            context.deadline = now + handler.timeout_s
        try:
            return handler.signature.read(context.job.args_json)
        except BaseException as error:  # noqa: BLE001 - argument types may run user code
            self._settler.failed(context, error, FailureStage.INPUT)
            return None

    def _start(self, context: Context, handler: Handler) -> bool:
        """Run the checks, then record the start. Return whether the handler may run."""
        try:
            for check in handler.checks:
                if check(context) is False:
                    raise TransientError(f"{getattr(check, '__qualname__', check)} returned False")
        except BaseException as error:  # noqa: BLE001 - any exception of a check keeps the job from starting
            if not context.timed_out:
                self._refuse_start(context, classify(error, handler.rules, FailureStage.INPUT))
            return False
        if context.timed_out:
            return False
        sent = self._runtime.monotonic()
        try:
            started = self._runtime.ledger.start(context.fence)
        except HoldfastError as error:
            context.apply_answer(error, 0)
            self._settler.abandon_start(context, error)
            return False
        context.apply_start(started, sent)
        self._runtime.log_started([context])
        return True

    def _refuse_start(self, context: Context, failure: ClassifiedFailure) -> None:
        """Stall an attempt that has not started, so that it is retried after its backoff, or dead-letter it.

        An attempt that has not started cannot fail.
        """
        if failure.retryable:
            self._settler.stall(context, failure)
        else:
            self._settler.submit(context, self._dead_letter, failure=failure)

    def _dead_letter(self, fence: Fence, *, failure: ClassifiedFailure, request_id: str) -> Job:
        """Dead-letter a claimed job as the system actor, if this attempt still holds it."""
        ledger = self._runtime.ledger
        for number in range(1, DEAD_LETTER_TRIES + 1):
            job = ledger.get(fence.job_id)
            if job.attempt != fence.attempt or job.status is not Status.CLAIMED:
                raise FenceLost(f"attempt {fence.attempt} no longer holds job {job.id}", job_id=job.id)
            try:
                return ledger.dead_letter(
                    job.id,
                    reason_code=failure.reason_code or "policy_violation",
                    failure_stage=failure.failure_stage or FailureStage.INPUT,
                    error=failure.error,
                    actor=Actor(Role.SYSTEM, self._runtime.name),
                    expected_rev=job.rev,
                    request_id=f"{request_id}-{number}",
                )
            except Conflict:
                if number == DEAD_LETTER_TRIES:
                    raise
        raise AssertionError("unreachable")

    # After the handler

    def _on_result(self, context: Context, result: Any, *, checked: bool = False) -> None:
        """Settle a result. `checked` means that the child process has checked it against the return annotation."""
        self._exit_if_forked()
        if result is None and context.handler.takes_none:
            self._settler.succeeded(context, None)
            return
        handler: Handler = context.handler
        try:
            if result is not None:
                result = to_plain_result(result)
            if handler.check_result is not None and not checked:
                handler.check_result(result)
            handler.hooks.check(context, result)
        except BaseException as error:  # noqa: BLE001 - any exception of a hook keeps the result from being recorded
            self._settler.failed(context, error, FailureStage.OUTPUT)
        else:
            self._settler.succeeded(context, result)

    def _on_error(self, context: Context, error: BaseException) -> None:
        self._exit_if_forked()
        if isinstance(error, MemoryError):
            # The handler's frames keep its objects alive. Clearing them frees memory to record the failure.
            traceback.clear_frames(error.__traceback__)
        self._settler.failed(context, error)

    def _exit_if_forked(self) -> None:
        """End this process if a handler forked it: its parent holds the jobs."""
        if self._forks != _forks:
            os._exit(0)

    def _drop_outcome(self, context: Context) -> None:
        """Stop the heartbeats of an attempt whose outcome could not be passed on for lack of memory or threads.

        Its lease then runs out.
        """
        self._runtime.forget(context)
        log.exception("this outcome is lost: the job is retried when its lease is over", extra={"job_id": context.job.id})


def _batch_results(handler: Handler, contexts: list[Context], returned: Any) -> Sequence[Any]:
    """Return the result of each job. A handler that returns None has no results."""
    if returned is None:
        return [None] * len(contexts)
    if not isinstance(returned, list | tuple) or len(returned) != len(contexts):
        raise PermanentError(f"{handler.kind} has to return a list with a result for each of its {len(contexts)} jobs, or None")
    return returned


@contextmanager
def _traced_job(context: Context, worker: str) -> Iterator[None]:
    with job_span(context.job, worker):
        context.traceparent = current_traceparent()
        with bind_job(context.job, worker, context.traceparent):
            yield
