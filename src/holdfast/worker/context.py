"""The context that a handler receives: its job, fence, heartbeats, checkpoints and cancellation."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import msgspec

from holdfast.core import limits
from holdfast.core.liveness import LivenessDenialReason, LivenessHeartbeatReceiptV1, check_gate, receipt_of
from holdfast.core.model import Fence, Micros, Status
from holdfast.core.model import JobRecord as Record
from holdfast.core.progress import read_progress
from holdfast.core.text import safe_str, truncate
from holdfast.errors import (
    GateDenied,
    HoldfastError,
    JobCancelled,
    LeaseConflictError,
    SignatureInvalid,
    Unavailable,
    ValidationError,
)
from holdfast.keeping.leases import KeptLease
from holdfast.ledger import Beat, Change, HeldJob, Job
from holdfast.ledger.options import check_options
from holdfast.ledger.public import ChildOptions, to_datetime, to_micros
from holdfast.worker.enqueue import OPTIONS, AsyncChildEnqueuer, AsyncEnqueueMethods, ChildEnqueuer, EnqueueMethods

if TYPE_CHECKING:
    from holdfast.worker.runtime import WorkerRuntime

log = logging.getLogger("holdfast.worker")


class LastBeat(NamedTuple):
    """The newest heartbeat that the ledger has answered. It is replaced as a whole, because several threads send heartbeats."""

    sent: float
    """When it was sent, by the worker's monotonic clock. The ledger received it at this time or later."""
    at: Micros
    rev: int
    status: Status
    started_at: Micros | None
    stage: str | None
    progress: int | None

    @classmethod
    def of(cls, job: Record, sent: float) -> "LastBeat":
        assert job.last_beat_at is not None
        return cls(sent, job.last_beat_at, job.rev, job.status, job.started_at, job.stage, job.progress)

    def apply_answer(self, answer: Beat, sent: float, fields: Mapping[str, Any]) -> "LastBeat":
        """Return the last beat after this answer. An answer to an older heartbeat changes nothing."""
        at = to_micros(answer.at)
        if at < self.at:
            return self
        stage, progress = fields.get("stage", self.stage), fields.get("progress", self.progress)
        return self._replace(sent=sent, at=at, rev=answer.rev, status=answer.status, stage=stage, progress=progress)

    def apply_start(self, change: Change, sent: float) -> "LastBeat":
        at = to_micros(change.at)
        return self._replace(sent=sent, at=at, rev=change.rev, status=change.status, started_at=at)

    def now(self, monotonic: float) -> Micros:
        """Return an estimate of the ledger's time."""
        return self.at + max(0, round((monotonic - self.sent) * 1_000_000))

    def record_of(self, job: Record) -> Record:
        """Return the job as it was when this heartbeat was answered. It has no `progressed_at`: only the ledger checks that."""
        assert job.policy is not None
        return msgspec.structs.replace(
            job,
            status=self.status,
            last_beat_at=self.at,
            started_at=self.started_at,
            stage=self.stage,
            progress=self.progress,
            progressed_at=None,
            lease_expires_at=self.at + job.policy.lease_ttl_ms * 1_000,
            revived_at=self.at if self.status is Status.STALLED else None,
        )

    def receipt(self, job: Record, fence: Fence) -> LivenessHeartbeatReceiptV1 | None:
        """Return the receipt of the attempt that `fence` belongs to, dated by this heartbeat."""
        held = msgspec.structs.replace(self.record_of(job), token=fence.token)
        return receipt_of(held, self.at)


class Context(EnqueueMethods, KeptLease):
    """One attempt at one job, as its handler sees it. All threads of the handler may use it."""

    is_loss_logged = False
    """The loss of the lease has been logged. That is done once."""
    _is_report_logged = False
    """A report that could not be read or sent has been logged. That is done once for an attempt."""
    release_requested = False
    """The worker is stopping and asks the handler to stop, so that the job can be released."""
    signature_refusal: SignatureInvalid | None = None
    """The error of the newest heartbeat, if it was refused because of its signature. The ledger then records nothing it does."""
    timed_out = False
    abandoned = False
    began = ended = -1.0
    """By the monotonic clock; negative until then."""
    deadline: float | None = None
    traceparent: str | None = None
    """The span that the handler ran in, if this program traces."""
    on_interrupt: "Callable[[Context], None] | None" = None
    _last_progress: dict[str, Any] | None = None
    """The last stage and progress that the handler reported, or None."""
    _last_beat: LastBeat | None = None
    """None while the claim counts as the newest heartbeat."""
    _new_checkpoint: Any = msgspec.UNSET

    def __init__(self, job: HeldJob, handler: Any, runtime: "WorkerRuntime", period: float, ttl: float, claimed: float) -> None:
        KeptLease.__init__(self, period, ttl, claimed)
        self.job = job
        self.handler = handler
        self._claimed = claimed
        self._runtime = runtime

    # State

    @property
    def fence(self) -> Fence:
        """The right to write to this attempt. Pass it to the resources that the handler changes."""
        return self.job.fence

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: a cancel was requested, its worker stops, it timed out, or its lease is lost."""
        self._runtime.poll_cancel(self)
        return self.cancel_requested or self.lost or self.timed_out or self.release_requested

    @property
    def restored(self) -> Any:
        """The state of the job's newest checkpoint, from this attempt or an earlier one; None if there is none."""
        return self.job.checkpoint if isinstance(self._new_checkpoint, msgspec.UnsetType) else self._new_checkpoint

    def check_cancelled(self) -> None:
        """Raise if the handler should stop: LeaseConflictError if the lease is lost, else JobCancelled."""
        stop = self.cancelled
        self._check_lease()
        if stop:
            raise JobCancelled(f"job {self.job.id} must stop: {self._stop_reason()}", job_id=self.job.id)

    def may_proceed(self) -> "Permit":
        """Check that the attempt may take a step that cannot be undone. `with job.may_proceed():` marks the step.

        Raise LeaseConflictError unless this attempt certainly still holds its lease, and JobCancelled if it must stop.
        Raise GateDenied if its receipt does not pass the gate: too long without an answer to a heartbeat, stalled, restarted
        too often. Raise it too if its newest heartbeat was refused because of its signature.
        """
        self.check_cancelled()
        self._check_signed()
        try:
            self._check_gate()
        except GateDenied:
            self._runtime.renew_overdue(self)
            self._check_gate()
        return Permit(self)

    def receipt(self) -> LivenessHeartbeatReceiptV1 | None:
        """Return this attempt's receipt, dated by the newest heartbeat that the ledger answered; None if the lease is lost."""
        return None if self.lost else self.last_beat.receipt(self.job.record, self.fence)

    def _check_gate(self) -> None:
        check_gate(self.job.record, self.receipt(), self.last_beat.now(self._runtime.monotonic()))

    def _check_signed(self) -> None:
        refusal = self.signature_refusal
        if refusal is not None:
            detail = f"its heartbeats are refused: {refusal.message}"
            reason, receipt = LivenessDenialReason.AMBIGUOUS_STATE.value, self.receipt()
            raise GateDenied(
                f"job {self.job.id} may not proceed: {detail}",
                job_id=self.job.id,
                reason=reason,
                detail=detail,
                receipt=None if receipt is None else receipt.to_object(),
            )

    def _check_lease(self) -> None:
        if not self.lost and self._runtime.monotonic() >= self.expires:
            self._runtime.renew_overdue(self)
        if self.lost or self._runtime.monotonic() >= self.expires:
            raise LeaseConflictError(
                f"job {self.job.id}: the lease of attempt {self.job.attempt} is over",
                job_id=self.job.id,
                attempt=self.job.attempt,
            )

    def _stop_reason(self) -> str:
        if self.timed_out:
            return "it timed out"
        return "it was cancelled" if self.cancel_requested else "its worker is stopping"

    # Reports to the ledger. Those that only tell how the work goes raise no error but the loss of the lease.

    def beat(self, *, stage: str | None = None, progress: float | None = None) -> Beat:
        """Send a heartbeat now. Its answer says whether to stop. The worker sends heartbeats by itself; this is rarely needed.

        `progress` is read as by `progress`. If the ledger cannot be reached, the answer is that of the newest heartbeat.
        Raise LeaseConflictError if the lease is lost.
        """
        return self._report(self._readable_fields(stage, progress))

    def progress(self, done: float | None = None, *, stage: str | None = None) -> None:
        """Report how far the job is. The next heartbeat sends it, within about a second. This never waits for the ledger.

        A number between 0 and 1 is a share and recorded in per cent: 0.5 is 50. Any other is rounded down. What cannot be read is
        logged and not sent.
        """
        fields = self._readable_fields(stage, done)
        if fields:
            self.queue_fields(fields)
        elif stage is None and done is None:
            self._log_report("None is neither a number nor a stage")

    def checkpoint(self, state: Any) -> None:
        """Save `state` (any JSON value) in the ledger. After a crash the next attempt finds it in `restored`."""
        self._send_beat(checkpoint=state)
        self._new_checkpoint = state

    def undo(self, handler: Any, /, **args: Any) -> None:
        """Register in the ledger how to undo the next step. `handler` is a registered handler or its kind.

        If this job does not succeed in the end, a separate job runs all registered steps in reverse order.
        """
        kind, plain = self._runtime.resolve_handler(handler, args)
        self._send_beat(undo={"kind": kind, "args": plain})

    def request_assist(self, wanted: bool = True) -> None:
        """Request an operator's help, or withdraw the request with False."""
        given: Any = wanted
        if isinstance(given, bool):
            self._report({"assist_requested": given})
        else:
            self._log_report(f"request_assist takes True or False, not {type(given).__name__}")

    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job:
        """Enqueue a job with this job's correlation id and trace."""
        return self._runtime.enqueue_child(self.job, handler, args, kwargs, {})

    def options(self, **options: Unpack[ChildOptions]) -> ChildEnqueuer:
        """Set options of `ledger.enqueue` for a call: `job.options(depends_on=[first]).enqueue(handler, …)`."""
        check_options("enqueue", options, OPTIONS)
        return ChildEnqueuer(lambda handler, args, kwargs: self._runtime.enqueue_child(self.job, handler, args, kwargs, options))

    def _readable_fields(self, stage: Any, progress: Any) -> dict[str, Any]:
        """Return the fields that are given and can be read. A missing field must not replace a value that is not sent yet."""
        fields: dict[str, Any] = {}
        if stage is not None:
            try:
                fields["stage"] = limits.check_name("stage", stage)
            except HoldfastError as error:
                self._log_report(error.message)
        if progress is not None:
            number = read_progress(progress)
            if number is None:
                self._log_report(f"progress {truncate(safe_str(progress), SHOWN_MAX)!r} is not a finite number")
            else:
                fields["progress"] = number
        return fields

    def _log_report(self, why: str) -> None:
        if not self._is_report_logged:
            self._is_report_logged = True
            log.warning("a report of a handler is left out: %s", why, extra={**self.log_fields, "kind": self.job.kind})

    def _report(self, fields: Mapping[str, Any]) -> Beat:
        """Send a heartbeat. Raise only if the lease is lost. Fields that cannot be sent now are sent with a later heartbeat."""
        try:
            return self._send_beat(**fields)
        except HoldfastError as error:
            if self.lost:
                raise
            self._log_report(error.message)
            if fields and error.retryable:
                self.queue_fields(fields)
        newest, policy = self.last_beat, self.job.record.policy
        assert policy is not None
        ends_at = None if newest.status is Status.STALLED else to_datetime(newest.at + policy.lease_ttl_ms * 1_000)
        return Beat(self.job.id, newest.rev, newest.status, ends_at, self.cancel_requested, to_datetime(newest.at))

    def _send_beat(self, **fields: Any) -> Beat:
        sent = self._runtime.monotonic()
        unsent = self.take_unsent() or {}
        try:
            answer = self._runtime.ledger.heartbeat(self.fence, **{**unsent, **fields})
        except Unavailable:
            self.requeue_fields(unsent)
            raise
        except HoldfastError as error:
            self.apply_answer(error, sent)
            raise
        self.apply_answer(answer, sent, {**unsent, **fields})
        progress = {name: fields[name] for name in _PROGRESS_FIELDS if name in fields}
        if progress:
            self._last_progress = {**(self._last_progress or {}), **progress}
            self._runtime.on_progress_sent(progress)
        return answer

    # For the worker

    @property
    def log_fields(self) -> dict[str, Any]:
        return {"job_id": self.job.id, "attempt": self.job.attempt}

    def queue_fields(self, fields: Mapping[str, Any]) -> None:
        self._last_progress = {**(self._last_progress or {}), **fields}
        super().queue_fields(fields)
        self._runtime.wake_heartbeats()

    @property
    def has_progress(self) -> bool:
        """Whether the handler has reported stage or progress."""
        return self._last_progress is not None

    def unrecorded_progress(self) -> dict[str, Any] | None:
        """Return the handler's last progress, or None if a heartbeat has certainly recorded it."""
        reported = self._last_progress
        if reported is None:
            return None
        newest = self.last_beat
        is_recorded = not self.is_sending and (newest.stage, newest.progress) == (
            reported.get("stage", newest.stage),
            reported.get("progress", newest.progress),
        )
        return None if is_recorded else reported

    @property
    def last_beat(self) -> LastBeat:
        """The newest heartbeat that the ledger has answered."""
        return self._last_beat or LastBeat.of(self.job.record, self._claimed)

    @last_beat.setter
    def last_beat(self, newest: LastBeat) -> None:
        self._last_beat = newest

    def apply_answer(self, answer: Beat | HoldfastError, sent: float, fields: Mapping[str, Any] | None = None) -> None:
        if isinstance(answer, Beat):
            self.signature_refusal = None
            self.last_beat = self.last_beat.apply_answer(answer, sent, fields or {})
        elif isinstance(answer, SignatureInvalid):
            self.signature_refusal = answer
        super().apply_answer(answer, sent, fields)

    def apply_start(self, change: Change, sent: float) -> None:
        """Apply the answer to a start, which counts as a heartbeat."""
        self.last_beat = self.last_beat.apply_start(change, sent)

    def apply_resume(self, job: Job | None, sent: float) -> None:
        super().apply_resume(job, sent)
        assert job is not None
        self.last_beat = LastBeat.of(job.record, sent)

    def request_release(self) -> None:
        if not self.release_requested:
            self.release_requested = True
            self._interrupt()

    def mark_timed_out(self) -> None:
        if not self.timed_out:
            self.timed_out = True
            self._interrupt()

    def _interrupt(self) -> None:
        callback = self.on_interrupt
        if callback is not None:
            callback(self)


_PROGRESS_FIELDS = ("stage", "progress")
SHOWN_MAX = 80
"""How many characters of a value that cannot be read are logged."""


class BatchContext(Context):
    """One job of a batch. The handler may settle it by itself, before the others."""

    def succeed(self, result: Any = None) -> None:
        """Record the success of this job now. What the handler returns or raises later does not count for it."""
        self._check_open()
        self._runtime.settle_result(self, result)

    def fail(self, error: BaseException) -> None:
        """Record the failure of this job now, as if the handler had raised the error for it alone."""
        self._check_open()
        if not isinstance(error, BaseException):
            raise ValidationError("fail takes an exception", field="error")
        self._runtime.settle_error(self, error)

    def _check_open(self) -> None:
        if self.is_settling:
            raise ValidationError(f"job {self.job.id} has its outcome already", field="job")


class AsyncContext(AsyncEnqueueMethods, Context):  # type: ignore[misc]
    """The context of an `async def` handler. Methods that call the ledger are coroutines."""

    async def beat(self, *, stage: str | None = None, progress: float | None = None) -> Beat:  # type: ignore[override]
        return await self._runtime.run_in_thread(super().beat, stage=stage, progress=progress)

    async def checkpoint(self, state: Any) -> None:  # type: ignore[override]
        await self._runtime.run_in_thread(super().checkpoint, state)

    async def undo(self, handler: Any, /, **args: Any) -> None:  # type: ignore[override]
        await self._runtime.run_in_thread(super().undo, handler, **args)

    async def request_assist(self, wanted: bool = True) -> None:  # type: ignore[override]
        await self._runtime.run_in_thread(super().request_assist, wanted)

    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Awaitable[Job]:  # type: ignore[override]
        return self._runtime.run_in_thread(Context._enqueue, self, handler, args, kwargs)  # noqa: SLF001 - the base class

    def options(self, **options: Unpack[ChildOptions]) -> AsyncChildEnqueuer:  # type: ignore[override]
        children = super().options(**options)
        return AsyncChildEnqueuer(
            lambda handler, args, kwargs: self._runtime.run_in_thread(children.enqueue, handler, *args, **kwargs)
        )


class Permit:
    """A step that was allowed. As a context manager it checks again at the start; leaving it does nothing."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> Context:
        self._context.may_proceed()
        return self._context

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None
