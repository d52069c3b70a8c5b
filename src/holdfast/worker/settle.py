"""From outcomes to the ledger: completions in bulk, the rest one by one, again and again while the store is out of reach."""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from holdfast.core.limits import WRITE_CHUNK
from holdfast.core.model import FailureStage, Fence, StallReason, Status
from holdfast.errors import (
    GateDenied,
    HoldfastError,
    JobCancelled,
    LeaseConflictError,
    LimitExceeded,
    SignatureInvalid,
    Unavailable,
    ValidationError,
)
from holdfast.ledger import Change, Job
from holdfast.telemetry.logs import JobFields, bind_job
from holdfast.worker.context import Context
from holdfast.worker.judge import JudgedError, Rules, describe, judge
from holdfast.worker.shift import Shift, log

BATCH_MAX = WRITE_CHUNK
HANDS = 8
"""Failures, releases and acknowledgements at once; the ledger's door puts them into common transactions."""
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.1, 2.0


class Settler:
    def __init__(self, shift: Shift) -> None:
        self._shift = shift
        self._done: deque[tuple[Context, Any]] = deque()
        self._due = threading.Event()
        self._idle = False
        self._closing = False
        self._hands = ThreadPoolExecutor(HANDS, thread_name_prefix="holdfast-settle")
        self.hurry = threading.Event()
        """Set when a store that stays out of reach is no longer waited for."""
        self._thread = threading.Thread(target=self._run, name="holdfast-settle", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # Outcomes

    def succeeded(self, context: Context, result: Any) -> None:
        """`result` is plain JSON. A lost or abandoned attempt records nothing."""
        if context.lost or context.abandoned or context.timed_out:
            self._shift.forget(context)
            return
        if context.handler.gate:
            self.hand(context, self._complete_gated, result=result)
            return
        context.ended = self._shift.monotonic()
        self._done.append((context, result))
        if self._idle:
            self._idle = False
            self._due.set()

    def failed(self, context: Context, error: BaseException, stage: FailureStage = FailureStage.EXEC) -> None:
        if context.abandoned or context.timed_out:
            return
        if context.lost or (isinstance(error, LeaseConflictError) and error.context.get("job_id") == context.job.id):
            self._shift.forget(context)
            log.warning("lease lost, nothing recorded", extra=_facts(context))
        elif isinstance(error, JobCancelled):
            self.hand(context, self._shift.ledger.acknowledge_cancel if context.asked_to_stop else self._shift.ledger.release)
        else:
            self._fail(context, error, stage)

    def _fail(self, context: Context, error: BaseException, stage: FailureStage) -> None:
        verdict = error.verdict if isinstance(error, JudgedError) else judge(error, context.handler.rules, stage)
        self.hand(
            context,
            self._shift.ledger.fail,
            error=verdict.error,
            retryable=verdict.retryable,
            reason_code=verdict.reason_code,
            failure_stage=verdict.failure_stage,
            retry_after=verdict.retry_after,
        )

    def timed_out(self, context: Context) -> None:
        """It took longer than its handler may: whatever it still does or says is too late."""
        assert context.deadline is not None
        began, ledger = context.began, self._shift.ledger
        error = TimeoutError(f"took longer than {context.deadline - began:g} s" if began >= 0 else "its checks took too long")
        context.time_out()
        if began >= 0:
            self._fail(context, error, FailureStage.EXEC)
        else:
            self.hand(context, ledger.stall, reason=StallReason.WORKER_ERROR, error=describe(error))

    def released(self, context: Context) -> None:
        """Hand a job back that did not finish, or did not even begin."""
        self.hand(context, self._shift.ledger.release)

    def abandon_start(self, context: Context, error: HoldfastError) -> None:
        """It could not be started: not ours any more, or the store is out of reach and the lease will run out."""
        self._shift.forget(context)
        log.warning("start refused: %s", error.code, extra={**_facts(context), "error": error.message})

    # Carrying them out

    def hand(self, context: Context, verb: Callable[..., Any], **given: Any) -> None:
        """Let `verb(fence, …, request_id=…)` be this attempt's outcome."""
        self._hands.submit(self._settle, context, verb, given)

    def _settle(self, context: Context, verb: Callable[..., Any], given: dict[str, Any]) -> None:
        with bind_job(context.job, self._shift.name):
            try:
                found = self._persist(lambda request: verb(context.fence, **given, request_id=request), context)
            except (LimitExceeded, ValidationError) as error:
                # What the handler wanted to say of its failure cannot be kept; that it failed can.
                plain = {"message": f"{error.code}: {error.message}"}
                kept = {name: given[name] for name in ("retryable", "reason_code", "failure_stage") if name in given}
                found = self._persist(
                    lambda request: self._shift.ledger.fail(context.fence, plain, **kept, request_id=request), context
                )
            finally:
                self._shift.forget(context)
            told = given["verdict"].error if "verdict" in given else given.get("error")
            if found is not None and told is not None:
                _report("attempt failed" if context.began >= 0 else "check refused", found, told)

    def _persist(self, act: Callable[[str], Any], context: Context) -> Job | None:
        """The ledger's answer, once there is one; the same request id each time, so that a lost answer does no harm."""
        request, pause = secrets.token_hex(8), PAUSE_SECONDS
        while True:
            try:
                found = act(request)
            except Unavailable as error:
                if not error.retryable or context.lost or self._gives_up(context, pause):
                    return None
            except (LimitExceeded, ValidationError):
                raise
            except HoldfastError as error:
                if _may_yet_be_signed(error) and not (context.lost or self._gives_up(context, pause)):
                    self._wait(pause)
                    pause = min(2 * pause, PAUSE_SECONDS_MAX)
                    continue
                log.warning("outcome refused: %s", error.code, extra={**_facts(context), "error": error.message})
                return None
            else:
                if context.began >= 0:
                    outcome = found.status if isinstance(found, Job | Change) else "released"
                    self._shift.ledger.metrics.ran(context.job.kind, outcome, self._shift.monotonic() - context.began)
                return found if isinstance(found, Job) else None
            self._wait(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    def _gives_up(self, context: Context, pause: float) -> bool:
        """Whether the worker has to end without the ledger: told to at once, or with a lease that is over anyhow."""
        over = self._closing and self._shift.monotonic() >= context.expires
        if over or (self.hurry.is_set() and pause >= PAUSE_SECONDS_MAX):
            log.error("the ledger is out of reach: this outcome is not recorded", extra=_facts(context))
            return True
        return False

    def _wait(self, seconds: float) -> None:
        """Until the store may be in reach again."""
        time.sleep(seconds)

    def _run(self) -> None:
        while True:
            if not self._done:
                self._idle = True
                if not self._done:
                    if self._closing:
                        return
                    self._due.wait()
                self._idle = False
                self._due.clear()
                continue
            done = self._done
            self._complete([done.popleft() for _ in range(min(len(done), BATCH_MAX))])

    def _complete(self, batch: list[tuple[Context, Any]]) -> None:
        request, pause = secrets.token_hex(8), PAUSE_SECONDS
        while batch:
            try:
                answers = self._shift.ledger.settle_many([(c.fence, result) for c, result in batch], request_id=request)
            except Unavailable as error:
                if not error.retryable:
                    return
            except (LimitExceeded, ValidationError) as error:
                self._complete_each(batch, error)
                return
            else:
                self._answered(batch, answers)
                return
            self._wait(pause)
            pause = min(2 * pause, PAUSE_SECONDS_MAX)
            batch = [(c, result) for c, result in batch if not (c.lost or self._gives_up(c, pause))]

    def _answered(self, batch: list[tuple[Context, Any]], answers: list[HoldfastError | None]) -> None:
        forget, ran = self._shift.forget, []
        for (context, result), answer in zip(batch, answers, strict=True):
            if _may_yet_be_signed(answer):
                self.hand(context, self._shift.ledger.complete, result=result)
                continue
            forget(context)
            if answer is None:
                ran.append((context.handler.kind, "succeeded", context.ended - context.began))
            else:
                log.warning("outcome refused: %s", answer.code, extra={**_facts(context), "error": answer.message})
        self._shift.ledger.metrics.ran_many(ran)

    def _complete_each(self, batch: list[tuple[Context, Any]], refused: HoldfastError) -> None:
        """Somebody's result cannot be kept: the others must not suffer for it."""
        for context, result in batch:
            if len(batch) > 1:
                self._complete([(context, result)])
            else:
                self._fail(context, _unkept(refused), FailureStage.OUTPUT)

    def _complete_gated(self, fence: Fence, *, result: Any, request_id: str) -> Change | Job:
        """Where the gate does not let the attempt pass, it has failed and may be tried again."""
        ledger = self._shift.ledger
        try:
            return ledger.complete(fence, result, gate=True, request_id=request_id)
        except GateDenied as denied:
            verdict = judge(denied, Rules(), FailureStage.COMMIT)
        except (LimitExceeded, ValidationError) as refused:
            verdict = judge(_unkept(refused), Rules(), FailureStage.OUTPUT)
        failed = ledger.fail(
            fence,
            verdict.error,
            retryable=verdict.retryable,
            reason_code=verdict.reason_code,
            failure_stage=verdict.failure_stage,
            request_id=f"{request_id}-failed",
        )
        _report("attempt failed", failed, verdict.error)
        return failed

    def close(self) -> None:
        self._closing = True
        self._due.set()
        if self._thread.is_alive():
            self._thread.join()
        self._hands.shutdown(wait=True)


def _may_yet_be_signed(answer: HoldfastError | None) -> bool:
    """A late outcome needs a stall on record first, which a process with a server key will sign, or can; a clock that is off is
    set right: the job is not lost."""
    return isinstance(answer, SignatureInvalid) and answer.retryable


def _unkept(refused: HoldfastError) -> ValidationError:
    return ValidationError(f"the result cannot be kept: {refused.message}", field="result")


def _facts(context: Context) -> dict[str, Any]:
    return dict(JobFields(context.job, context.fence.worker))


def _report(what: str, job: Job, error: dict[str, Any]) -> None:
    """One line for an attempt that came to nothing, which says what becomes of the job."""
    becomes = f"tried again at {job.available_at:%H:%M:%S}" if job.status is Status.QUEUED else job.status.value
    log.warning("%s: %s; %s", what, error.get("type", "error"), becomes, extra={"error": error["message"][:500]})
