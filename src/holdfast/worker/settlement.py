"""Send the outcomes of attempts to the ledger: completions in batches, all others one by one.

An outcome is retried with the same request id if the store is out of reach or another transaction has locked the job. Other
outcomes do not wait for it.
"""

import heapq
import logging
import secrets
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from typing import Any, NamedTuple

from holdfast.core.limits import WRITE_CHUNK
from holdfast.core.model import FailureStage, Fence, StallReason, Status
from holdfast.core.text import iso_format
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
from holdfast.ledger.public import ClaimedJob
from holdfast.store.rows import ClaimedJobs, row_attempt
from holdfast.telemetry.logs import JobFields, bind_job, log_step
from holdfast.worker.context import Context
from holdfast.worker.failures import ClassifiedError, ClassifiedFailure, RetryRules, classify
from holdfast.worker.runtime import WorkerRuntime, log

BATCH_MAX = WRITE_CHUNK
INFO_EVENTS = frozenset({Status.SUCCEEDED.value, Status.CANCELLED.value, "released"})
"""Outcomes that are logged at level info. All others are warnings."""
QUICK_SECONDS = 0.0005
"""The success of a handler that took less than this waits for the rest of its claim, which follows soon."""
WHOLE_CLAIM_SECONDS = 0.005
"""How long it waits at most. The jobs of a whole claim are completed by one statement."""
POLL_SECONDS = 0.001
ALIKE_MIN = 20
"""Jobs of one claim that are worth a statement of their own, if there are others to complete as well."""
THREADS_MAX = 8
"""Threads for failures, releases and acknowledgements. The ledger's group commit combines their transactions."""
RETRY_SECONDS, RETRY_SECONDS_MAX = 0.1, 2.0
LOCKED_SECONDS = 10.0
"""How long a stopping worker tries to record the outcome of a job that another transaction has locked."""


class PendingOutcome(NamedTuple):
    """An outcome that is not recorded yet. It is recorded by the call `verb(fence, …, request_id=…)`."""

    context: Context
    verb: Callable[..., Any]
    arguments: dict[str, Any]
    request: str = ""
    pause_s: float = RETRY_SECONDS
    """How long to wait before the next try."""
    is_without_details: bool = False
    """It is a failure without the handler's details, because the ledger refused them."""

    def with_backoff(self) -> "PendingOutcome":
        return self._replace(pause_s=min(2 * self.pause_s, RETRY_SECONDS_MAX))


class ClaimPart(NamedTuple):
    """Successes without a result, of jobs of one claim. They can be completed by one statement."""

    claim: ClaimedJobs
    attempt: int
    since: float
    contexts: list[Context]

    def is_ready(self, now: float) -> bool:
        """Return whether to complete these jobs now: the claim is whole, a handler is not quick, or they have waited enough."""
        last = self.contexts[-1]
        return (
            len(self.contexts) == len(self.claim)
            or last.ended - last.began > QUICK_SECONDS
            or now >= self.since + WHOLE_CLAIM_SECONDS
        )


class Settler:
    """Record the outcomes of a worker's attempts, and retry those that the store cannot record now."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime
        self._mutex = threading.Lock()
        self._pending = 0
        """Outcomes that the executor has to record, including those that wait for a retry."""
        self._retries: list[tuple[float, int, Callable[[], object]]] = []
        """A heap of the calls to retry, ordered by time."""
        self._retry_numbers = count()
        """Order retries of the same time: calls cannot be compared."""
        self._completed: deque[tuple[Context, Any]] = deque()
        self._parts: dict[tuple[int, int], ClaimPart] = {}
        """Parts of claims that wait for the rest, by the claim's identity and the attempt number. Only one thread uses them."""
        self._wakeup = threading.Event()
        self._idle = False
        """The thread waits, or is about to. It has to be woken."""
        self._closing = False
        self._closing_at = float("inf")
        self._executor = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="holdfast-settle")
        self.stop_at_once = threading.Event()
        """Set when the worker should no longer wait for a store that is out of reach."""
        self._thread = threading.Thread(target=self._run, name="holdfast-settle", daemon=True)

    def start(self) -> None:
        self._thread.start()

    # Outcomes

    def succeeded(self, context: Context, result: Any) -> None:
        """Record a success. `result` is plain JSON. Nothing is recorded if the attempt is lost, abandoned or timed out."""
        if context.lost or context.abandoned or context.timed_out:
            self._runtime.forget(context)
            return
        if context.handler.gate:
            self.submit(context, self._complete_gated, result=result)
            return
        context.ended = self._runtime.monotonic()
        context.is_settling = True
        self._completed.append((context, result))
        self._wake()

    def failed(self, context: Context, error: BaseException, stage: FailureStage = FailureStage.EXEC) -> None:
        """Record what follows from the error: a failure, a release or the acknowledgement of a cancel."""
        if context.abandoned or context.timed_out:
            return
        if context.lost or (isinstance(error, LeaseConflictError) and error.context.get("job_id") == context.job.id):
            self._runtime.forget(context)
            self._runtime.log_lost(context, "lease lost, nothing recorded", self._runtime.ledger)
        elif isinstance(error, JobCancelled):
            self.submit(
                context, self._runtime.ledger.acknowledge_cancel if context.cancel_requested else self._runtime.ledger.release
            )
        else:
            self._fail(context, error, stage)

    def _fail(self, context: Context, error: BaseException, stage: FailureStage) -> None:
        failure = error.failure if isinstance(error, ClassifiedError) else classify(error, context.handler.rules, stage)
        self.submit(context, self._runtime.ledger.fail, **failure._asdict())

    def timed_out(self, context: Context) -> None:
        """Fail an attempt that took longer than its handler's timeout. Its own outcome is ignored from now on."""
        assert context.deadline is not None
        began = context.began
        error = TimeoutError(f"took longer than {context.deadline - began:g} s" if began >= 0 else "its checks took too long")
        context.mark_timed_out()
        if began >= 0:
            self._fail(context, error, FailureStage.EXEC)
        else:
            self.stall(context, classify(error, context.handler.rules, FailureStage.INPUT))

    def stall(self, context: Context, failure: ClassifiedFailure) -> None:
        """Stall an attempt that has not started and cannot continue."""
        self.submit(
            context,
            self._runtime.ledger.stall,
            reason=StallReason.WORKER_ERROR,
            error=failure.error,
            reason_code=failure.reason_code,
            failure_stage=failure.failure_stage,
        )

    def released(self, context: Context) -> None:
        """Release a job that did not finish or did not begin."""
        self.submit(context, self._runtime.ledger.release)

    def abandon_start(self, context: Context, error: HoldfastError) -> None:
        """Drop an attempt whose start was refused or could not be sent. In the second case its lease runs out."""
        self._runtime.forget(context)
        self._runtime.log_lost(context, f"start refused: {error.code}", self._runtime.ledger, error)

    # Recording them

    def submit(self, context: Context, verb: Callable[..., Any], **arguments: Any) -> None:
        """Record the attempt's outcome with the call `verb(fence, …, request_id=…)`, in another thread."""
        if not context.is_settling:
            context.ended = self._runtime.monotonic()
        context.is_settling = True
        with self._mutex:
            self._pending += 1
        self._dispatch(PendingOutcome(context, verb, arguments, secrets.token_hex(8)))

    def _dispatch(self, pending: "PendingOutcome") -> None:
        self._executor.submit(self._settle, pending)

    def _settle(self, pending: "PendingOutcome") -> None:
        """Try once to record the outcome, else schedule a retry. A thread that waited would delay other outcomes."""
        again: PendingOutcome | None = None
        try:
            with bind_job(pending.context.job, self._runtime.name):
                again = self._try_settle(pending)
        finally:
            if again is None:
                self._runtime.forget(pending.context)
                with self._mutex:
                    self._pending -= 1
                self._wake()
            else:
                self._retry_later(pending.pause_s, lambda: self._executor.submit(self._settle, again))

    def _try_settle(self, pending: "PendingOutcome") -> "PendingOutcome | None":
        """Record the outcome, or return the outcome to retry later.

        A retry uses the same request id, so that the outcome is recorded once even if an answer was lost.
        """
        context, arguments = pending.context, pending.arguments
        if context.is_sending and pending.pause_s < RETRY_SECONDS_MAX:
            # A heartbeat with older progress is being sent. It must not arrive after the last progress.
            return pending.with_backoff()
        try:
            self._send_last_progress(context, gated=pending.verb == self._complete_gated)
            answer = pending.verb(context.fence, **arguments, request_id=pending.request)
        except (LimitExceeded, ValidationError) as error:
            if pending.is_without_details:
                raise
            # The details of the failure cannot be stored. Record the failure without them.
            plain = {name: value for name, value in arguments.items() if name in ("retryable", "reason_code", "failure_stage")}
            plain["error"] = {"message": f"{error.code}: {error.message}"}
            return self._try_settle(
                PendingOutcome(context, self._runtime.ledger.fail, plain, secrets.token_hex(8), is_without_details=True)
            )
        except HoldfastError as error:
            if _is_retryable(error) and not (context.lost or self._gives_up(context, pending.pause_s, locked=_is_locked(error))):
                return pending.with_backoff()
            if not isinstance(error, Unavailable):
                self._runtime.log_lost(context, f"outcome refused: {error.code}", self._runtime.ledger, error)
            return None
        event = "released" if pending.verb == self._runtime.ledger.release else _outcome_event(answer)
        if context.began >= 0:
            self._runtime.ledger.metrics.ran(context.job.kind, event, context.ended - context.began)
        _log_outcome(context, event, answer if isinstance(answer, Job) else None)
        return None

    def _send_last_progress(self, context: Context, *, gated: bool) -> None:
        """Record the handler's last progress before its outcome. If it is refused, the outcome is refused and logged too."""
        progress = context.unrecorded_progress()
        if progress is None or (gated and not self._passes_gate(context)):
            return
        sent = self._runtime.monotonic()
        try:
            context.apply_answer(self._runtime.ledger.heartbeat(context.fence, **progress), sent, progress)
        except HoldfastError as error:
            if isinstance(error, Unavailable):
                raise

    def _passes_gate(self, context: Context) -> bool:
        """Return whether the attempt passes the gate now. The heartbeat with its last progress must not make it pass."""
        try:
            self._runtime.ledger.gate(context.fence)
        except HoldfastError:
            return False
        return True

    def _gives_up(self, context: Context, pause_s: float, *, locked: bool = False) -> bool:
        """Return whether to drop the outcome because the worker is stopping: at once, or after the lease is over.

        A lock of another transaction is waited for only LOCKED_SECONDS, because heartbeats may keep the lease alive meanwhile.
        """
        now = self._runtime.monotonic()
        over = self._closing and (now >= context.expires or (locked and now >= self._closing_at + LOCKED_SECONDS))
        if over or (self.stop_at_once.is_set() and pause_s >= RETRY_SECONDS_MAX):
            why = "another transaction has locked the job" if locked else "the ledger is out of reach"
            log.error("%s: this outcome is not recorded", why, extra=_job_fields(context))
            return True
        return False

    # Retries and batches

    def _retry_later(self, seconds: float, work: Callable[[], object]) -> None:
        with self._mutex:
            heapq.heappush(self._retries, (self._runtime.monotonic() + seconds, next(self._retry_numbers), work))
        self._wake()

    def _wake(self) -> None:
        if self._idle:
            self._idle = False
            self._wakeup.set()

    def _run_due(self) -> float | None:
        """Run the retries that are due. Return the seconds until the next one, or None."""
        while True:
            with self._mutex:
                if not self._retries:
                    return None
                left = self._retries[0][0] - self._runtime.monotonic()
                if left > 0:
                    return left
                _, _, work = heapq.heappop(self._retries)
            work()

    def _run(self) -> None:
        completed = self._completed
        while True:
            # Set before the checks: an outcome that arrives after them wakes this thread.
            self._idle = True
            left = self._run_due()
            if not completed and not self._parts:
                if self._closing and left is None and not self._pending:
                    return
                self._wakeup.wait(left)
                self._wakeup.clear()
                continue
            self._idle = False
            self._complete_batch([completed.popleft() for _ in range(min(len(completed), BATCH_MAX))])
            self._complete_parts()
            if self._parts and not completed:
                time.sleep(POLL_SECONDS)

    def _complete_batch(self, batch: list[tuple[Context, Any]]) -> None:
        """Complete the jobs of a batch. Those without a result are completed by claim, when it is whole or after a short wait."""
        others: list[tuple[Context, Any]] = []
        for context, result in batch:
            job = context.job
            if result is None and isinstance(job, ClaimedJob) and not job.claim.is_signed and not context.has_progress:
                claim, attempt = job.claim, row_attempt(job.row)
                part = self._parts.get((id(claim), attempt))
                if part is None:
                    part = self._parts[id(claim), attempt] = ClaimPart(claim, attempt, context.ended, [])
                part.contexts.append(context)
            else:
                others.append((context, result))
        if others:
            self._complete(others, secrets.token_hex(8), RETRY_SECONDS)

    def _complete_parts(self) -> None:
        """Complete the parts of claims that are ready: large ones by a statement each, small ones together."""
        now = self._runtime.monotonic()
        ready = [(key, part) for key, part in self._parts.items() if part.is_ready(now)]
        small: list[tuple[Context, Any]] = []
        for key, part in ready:
            del self._parts[key]
            contexts = [context for context in part.contexts if not context.lost]
            if len(contexts) >= ALIKE_MIN or (len(ready) == 1 and contexts):
                self._complete_alike(contexts, secrets.token_hex(8))
            else:
                small += [(context, None) for context in contexts]
        if small:
            self._complete(small, secrets.token_hex(8), RETRY_SECONDS)

    def _complete_alike(self, contexts: list[Context], request: str) -> None:
        """Complete jobs of one claim without results. What that leaves uncompleted goes the usual way."""
        try:
            done = self._runtime.ledger.settle_alike([context.job for context in contexts], None, request_id=request)
        except Unavailable as error:
            if error.retryable:
                self._complete_later([(context, None) for context in contexts], request, RETRY_SECONDS)
        except Exception:  # noqa: BLE001 - a live worker must not stop completing jobs
            log.exception("completions failed and will be retried")
            self._complete_later([(context, None) for context in contexts], request, RETRY_SECONDS)
        else:
            self._note_completed(contexts if done is None else [context for context in contexts if context.job.id in done])
            if done is not None:
                self._complete([(c, None) for c in contexts if c.job.id not in done], request, RETRY_SECONDS)

    def _note_completed(self, contexts: Sequence[Context]) -> None:
        runs = defaultdict(list)
        for context in contexts:
            self._runtime.forget(context)
            runs[context.handler.kind].append(context.ended - context.began)
        for kind, seconds in runs.items():
            self._runtime.ledger.metrics.ran_many(kind, Status.SUCCEEDED.value, seconds)
        if log.isEnabledFor(logging.INFO):
            for context in contexts:
                _log_outcome(context, Status.SUCCEEDED.value, None)

    def _complete(self, batch: list[tuple[Context, Any]], request: str, pause_s: float) -> None:
        """Complete these jobs in one call. If the store is out of reach, retry all of them later."""
        batch = [(context, result) for context, result in batch if not context.lost]
        if not batch:
            return
        progress = [(context.fence, last) for context, _ in batch if (last := context.unrecorded_progress()) is not None]
        try:
            answers = self._runtime.ledger.settle_many(
                [(context.fence, result) for context, result in batch], request_id=request, heartbeats=progress
            )
        except Unavailable as error:
            # It is not retryable if the ledger was closed. The leases then end, and the jobs run again elsewhere.
            if error.retryable:
                self._complete_later(batch, request, pause_s)
        except (LimitExceeded, ValidationError) as error:
            self._complete_each(batch, error)
        except Exception:  # noqa: BLE001 - a live worker must not stop completing jobs
            log.exception("completions failed and will be retried")
            self._complete_later(batch, request, pause_s)
        else:
            locked = [one for one, answer in zip(batch, answers, strict=True) if _is_locked(answer)]
            self._complete_later(locked, request, pause_s, locked=True)
            self._apply_answers([pair for pair in zip(batch, answers, strict=True) if not _is_locked(pair[1])])

    def _complete_later(self, batch: list[tuple[Context, Any]], request: str, pause_s: float, *, locked: bool = False) -> None:
        """Retry these completions later. New completions do not wait for them."""
        left = [(context, result) for context, result in batch if not self._gives_up(context, pause_s, locked=locked)]
        if left:
            self._retry_later(pause_s, lambda: self._complete(left, request, min(2 * pause_s, RETRY_SECONDS_MAX)))

    def _apply_answers(self, answered: list[tuple[tuple[Context, Any], HoldfastError | None]]) -> None:
        for (context, result), answer in answered:
            if _may_be_signed_later(answer):
                self.submit(context, self._runtime.ledger.complete, result=result)
            elif answer is not None:
                self._runtime.forget(context)
                self._runtime.log_lost(context, f"outcome refused: {answer.code}", self._runtime.ledger, answer)
        self._note_completed([context for (context, _), answer in answered if answer is None])

    def _complete_each(self, batch: list[tuple[Context, Any]], refused: HoldfastError) -> None:
        """Complete each job by itself, because the ledger refused a result of the batch. Fail the job with that result."""
        for context, result in batch:
            if len(batch) > 1:
                self._complete([(context, result)], secrets.token_hex(8), RETRY_SECONDS)
            else:
                self._fail(context, _result_refused(refused), FailureStage.OUTPUT)

    def _complete_gated(self, fence: Fence, *, result: Any, request_id: str) -> Change | Job:
        """Complete the job if the attempt passes the gate; else fail it so that it is retried."""
        ledger = self._runtime.ledger
        try:
            return ledger.complete(fence, result, gate=True, request_id=request_id)
        except GateDenied as denied:
            failure = classify(denied, RetryRules(), FailureStage.COMMIT)
        except (LimitExceeded, ValidationError) as refused:
            failure = classify(_result_refused(refused), RetryRules(), FailureStage.OUTPUT)
        return ledger.fail(fence, **failure._asdict(), request_id=f"{request_id}-failed")

    def close(self) -> None:
        self._closing_at = self._runtime.monotonic()
        self._closing = True
        self._wakeup.set()
        if self._thread.is_alive():
            self._thread.join()
        self._executor.shutdown(wait=True)


def _is_locked(answer: HoldfastError | None) -> bool:
    return isinstance(answer, Unavailable) and answer.locked


def _is_retryable(error: HoldfastError) -> bool:
    """Return whether the same request may be accepted later."""
    return (isinstance(error, Unavailable) and error.retryable) or _may_be_signed_later(error)


def _may_be_signed_later(answer: HoldfastError | None) -> bool:
    """Return whether the request may be accepted once another process has signed something, or a clock is corrected.

    A late outcome needs a recorded stall first, which only a process with a server key can sign.
    """
    return isinstance(answer, SignatureInvalid) and answer.retryable


def _result_refused(refused: HoldfastError) -> ValidationError:
    return ValidationError(f"the result cannot be kept: {refused.message}", field="result")


def _job_fields(context: Context) -> dict[str, Any]:
    return dict(JobFields(context.job, context.fence.worker, context.traceparent))


def _outcome_event(answer: Job | Change) -> str:
    """Return the outcome of an attempt in one word."""
    return "retried" if answer.status is Status.QUEUED else answer.status.value


def _log_outcome(context: Context, event: str, job: Job | None) -> None:
    """Log the outcome of an attempt in one line. `job` is its job after that, if the ledger returned it."""
    level, text = (logging.INFO, event) if event in INFO_EVENTS else (logging.WARNING, event.replace("_", "-"))
    if not log.isEnabledFor(level):
        return
    duration_ms = None if context.began < 0 else round((context.ended - context.began) * 1_000, 3)
    facts: dict[str, Any] = {}
    if job is not None and level == logging.WARNING:
        facts = {"error": job.last_error, "reason_code": None if job.reason_code is None else job.reason_code.value}
        if event == Status.DEAD_LETTERED:
            text += f" ({facts['reason_code']})"
        elif event == Status.STALLED:
            text = "refused by a check"
        elif event == "retried":
            facts["retry_at"] = iso_format(job.available_at, "milliseconds")
            text = _retry_text(job)
    log_step(log, level, event, _job_fields(context), text, duration_ms=duration_ms, **facts)


def _retry_text(job: Job) -> str:
    """Return the log text of a retry. Its time is in UTC, like those of log lines. Released attempts do not count."""
    policy, at = job.policy, job.available_at
    most = "" if policy is None else f" of {policy.attempts_max + job.releases}"
    when = at.strftime("%H:%M:%S" if at - job.updated_at < timedelta(days=1) else "%Y-%m-%d %H:%M:%S")
    return f"failed in attempt {job.attempt}{most} and is tried again at {when}"
