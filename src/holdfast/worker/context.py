"""The context that a handler is given: its job, fence, heartbeats, checkpoints and cancellation."""

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import msgspec

from holdfast.core.liveness import LivenessDenialReason, LivenessHeartbeatReceiptV1, check_gate, receipt_of
from holdfast.core.model import Fence, Micros, Status
from holdfast.core.model import JobRecord as Record
from holdfast.errors import GateDenied, HoldfastError, JobCancelled, LeaseConflictError, NotFound, SignatureInvalid, Unavailable
from holdfast.ledger import Beat, Change, Job
from holdfast.ledger.public import ChildOptions, to_micros
from holdfast.worker.enqueue import AsyncChildEnqueuer, AsyncEnqueueMethods, ChildEnqueuer, EnqueueMethods, check_options

if TYPE_CHECKING:
    from holdfast.worker.runtime import WorkerRuntime


class LastBeat(NamedTuple):
    """The newest beat that the ledger has answered. A new one replaces it as a whole: beats come from several threads."""

    sent: float
    """When it was sent, by the worker's monotonic clock: it may be a little older by that, and never younger."""
    at: Micros
    status: Status
    started_at: Micros | None
    stage: str | None
    progress: int | None

    @classmethod
    def of(cls, job: Record, sent: float) -> "LastBeat":
        assert job.last_beat_at is not None
        return cls(sent, job.last_beat_at, job.status, job.started_at, job.stage, job.progress)

    def apply_answer(self, answer: Beat, sent: float, fields: Mapping[str, Any]) -> "LastBeat":
        """With a beat's answer; an older one that comes late changes nothing."""
        at = to_micros(answer.at)
        if at < self.at:
            return self
        stage, progress = fields.get("stage", self.stage), fields.get("progress", self.progress)
        return self._replace(sent=sent, at=at, status=answer.status, stage=stage, progress=progress)

    def apply_start(self, change: Change, sent: float) -> "LastBeat":
        at = to_micros(change.at)
        return self._replace(sent=sent, at=at, status=change.status, started_at=at)

    def now(self, monotonic: float) -> Micros:
        """The ledger's time, as far as it can be told from here."""
        return self.at + max(0, round((monotonic - self.sent) * 1_000_000))

    def record_of(self, job: Record) -> Record:
        """The job as it was when this beat was answered. Whether it makes progress is the ledger's to judge."""
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
        """Of the attempt behind `fence`, dated by this beat."""
        held = msgspec.structs.replace(self.record_of(job), token=fence.token)
        return receipt_of(held, self.at)


class Context(EnqueueMethods):
    """One attempt at one job, as its handler sees it. Safe to use from any thread of the handler's."""

    lost = False
    """The lease is over: somebody else may have the job. Nothing this attempt writes is accepted any more."""
    refusal: HoldfastError | None = None
    """The refusal that told that the lease is over."""
    is_loss_logged = False
    """Its loss is logged, which is done once."""
    cancel_requested = False
    """Somebody asked for a soft cancel."""
    release_requested = False
    """The worker is about to stop and would hand the job back."""
    signature_refusal: SignatureInvalid | None = None
    """Why its newest beat was refused, where that was for want of a signature: nothing it does is on record then."""
    timed_out = False
    abandoned = False
    is_settling = False
    """Its outcome is on the way to the ledger."""
    began = ended = -1.0
    """By the monotonic clock; below zero until then."""
    deadline: float | None = None
    traceparent: str | None = None
    """The span that the handler ran in, where this program traces."""
    on_interrupt: "Callable[[Context], None] | None" = None
    _unsent_progress: dict[str, Any] | None = None
    """What was said and not yet sent."""
    _progress_in_flight: dict[str, Any] | None = None
    """What the worker's own beat tells at this moment: it is not known to be on record."""
    _last_progress: dict[str, Any] | None = None
    """The last stage and progress that the handler has said. None where it has said nothing."""
    _last_beat: LastBeat | None = None
    """None while the claim is its newest beat."""
    _new_checkpoint: Any = msgspec.UNSET

    def __init__(self, job: Job, handler: Any, runtime: "WorkerRuntime", period: float, ttl: float, claimed: float) -> None:
        assert job.fence is not None
        self.job = job
        self.fence: Fence = job.fence
        """The right to write to this attempt; hand it to the resources you touch."""
        self.handler = handler
        self.period = period
        self.ttl = ttl
        self.due = claimed + period
        self.expires = claimed + ttl
        self._claimed = claimed
        self._runtime = runtime

    # Knowing

    @property
    def cancelled(self) -> bool:
        """The handler should come to an end: a cancel was asked for, its worker stops, its time is up, or its lease is lost."""
        self._runtime.poll_cancel(self)
        return self.cancel_requested or self.lost or self.timed_out or self.release_requested

    @property
    def restored(self) -> Any:
        """What the newest checkpoint of this job holds, of this attempt or of an earlier one; None where there is none."""
        return self.job.checkpoint if isinstance(self._new_checkpoint, msgspec.UnsetType) else self._new_checkpoint

    def check_cancelled(self) -> None:
        """Raise where the handler should stop: JobCancelled when asked to, LeaseConflictError when the lease is lost."""
        stop = self.cancelled
        self._check_lease()
        if stop:
            raise JobCancelled(f"job {self.job.id} is to stop: {self._stop_reason()}", job_id=self.job.id)

    def may_proceed(self) -> "Permit":
        """Call this in front of a step that cannot be undone; `with job.may_proceed():` around it reads well.

        Raises LeaseConflictError unless this attempt certainly still holds its lease, JobCancelled if it is to stop, and
        GateDenied if its receipt does not pass the gate: too long without an answer to a beat, stalled, restarted too often; or
        if its newest beat was refused for want of a signature.
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
        """The receipt of this attempt, dated by the newest beat that the ledger has answered; None once the lease is lost."""
        return None if self.lost else self.last_beat.receipt(self.job.record, self.fence)

    def _check_gate(self) -> None:
        check_gate(self.job.record, self.receipt(), self.last_beat.now(self._runtime.monotonic()))

    def _check_signed(self) -> None:
        refused = self.signature_refusal
        if refused is not None:
            detail = f"its beats are refused: {refused.message}"
            reason, shown = LivenessDenialReason.AMBIGUOUS_STATE.value, self.receipt()
            raise GateDenied(
                f"job {self.job.id} may not proceed: {detail}",
                job_id=self.job.id,
                reason=reason,
                detail=detail,
                receipt=None if shown is None else shown.to_object(),
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
            return "its time is up"
        return "somebody cancelled it" if self.cancel_requested else "its worker stops"

    # Telling

    def beat(self, *, stage: str | None = None, progress: int | None = None) -> Beat:
        """Prove life now, and learn at once whether to stop. Beats are sent by themselves; this is for the impatient."""
        return self._send_beat(**_given_fields(stage, progress))

    def progress(self, done: int | None = None, *, stage: str | None = None) -> None:
        """Tell how far the job is; sent with the next beat, within a second or so. Never waits for the ledger."""
        self._runtime.check_progress(stage, done)
        self.queue_progress(_given_fields(stage, done))

    def checkpoint(self, state: Any) -> None:
        """Keep `state` (any JSON value) durably: after a crash the next attempt finds it in `restored`."""
        self._send_beat(checkpoint=state)
        self._new_checkpoint = state

    def undo(self, handler: Any, /, **args: Any) -> None:
        """Register, durably, how to undo what comes next: should this job not succeed in the end, all such steps run in reverse
        order as a job of their own. `handler` is a registered handler or its kind."""
        kind, plain = self._runtime.resolve_handler(handler, args)
        self._send_beat(undo={"kind": kind, "args": plain})

    def request_assist(self, wanted: bool = True) -> None:
        """Ask for an operator's help."""
        self._send_beat(assist_requested=wanted)

    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job:
        """A new job that belongs to this one: it has its correlation id and its trace."""
        return self._runtime.enqueue_child(self.job, handler, args, kwargs, {})

    def options(self, **options: Unpack[ChildOptions]) -> ChildEnqueuer:
        """Enqueue such jobs with the options of `ledger.enqueue`: `job.options(depends_on=[first]).enqueue(handler, …)`."""
        check_options("enqueue", options)
        return ChildEnqueuer(lambda handler, args, kwargs: self._runtime.enqueue_child(self.job, handler, args, kwargs, options))

    def _send_beat(self, **fields: Any) -> Beat:
        sent = self._runtime.monotonic()
        unsent = self.take_unsent_progress() or {}
        try:
            answer = self._runtime.ledger.heartbeat(self.fence, **{**unsent, **fields})
        except Unavailable:
            self._unsent_progress = {**unsent, **(self.take_unsent_progress() or {})} or None
            raise
        except HoldfastError as error:
            self.apply_answer(error, sent)
            raise
        self.apply_answer(answer, sent, {**unsent, **fields})
        words = {name: fields[name] for name in _PROGRESS_FIELDS if name in fields}
        if words:
            self._last_progress = {**(self._last_progress or {}), **words}
            self._runtime.on_progress_sent(words)
        return answer

    # What the worker's own parts use

    def take_unsent_progress(self) -> dict[str, Any] | None:
        unsent, self._unsent_progress = self._unsent_progress, None
        return unsent

    def queue_progress(self, unsent: dict[str, Any]) -> None:
        """To be sent with the next beat; what was told before and not yet sent is overtaken."""
        self._last_progress = {**(self._last_progress or {}), **unsent}
        self._unsent_progress = {**(self._unsent_progress or {}), **unsent}
        self._runtime.wake_heartbeats()

    def begin_sending(self) -> dict[str, Any] | None:
        """What the worker's next beat tells; `finish_sending` says what came of it. Once it has ended, its outcome tells it."""
        self._progress_in_flight = None if self.is_settling else self.take_unsent_progress()
        return self._progress_in_flight

    def finish_sending(self, *, again: bool) -> None:
        """The beat was answered; with `again`, it has to be sent once more. What was told since overtakes it."""
        unsent, self._progress_in_flight = self._progress_in_flight, None
        if unsent and again:
            self._unsent_progress = {**unsent, **(self._unsent_progress or {})}
            self._runtime.wake_heartbeats()

    @property
    def has_unsent_progress(self) -> bool:
        return self._unsent_progress is not None

    @property
    def is_sending(self) -> bool:
        """Whether a beat of its worker is on its way with what the handler said."""
        return self._progress_in_flight is not None

    def unrecorded_progress(self) -> dict[str, Any] | None:
        """What the handler said last, unless that is on record as far as is known here."""
        said = self._last_progress
        if said is None:
            return None
        newest = self.last_beat
        known = self._progress_in_flight is None and (newest.stage, newest.progress) == (
            said.get("stage", newest.stage),
            said.get("progress", newest.progress),
        )
        return None if known else said

    @property
    def last_beat(self) -> LastBeat:
        """Its newest beat."""
        return self._last_beat or LastBeat.of(self.job.record, self._claimed)

    @last_beat.setter
    def last_beat(self, newest: LastBeat) -> None:
        self._last_beat = newest

    def apply_answer(self, answer: Beat | HoldfastError, sent: float, fields: Mapping[str, Any] | None = None) -> None:
        """The ledger's answer to a beat that was sent at this monotonic time, with what it told."""
        if isinstance(answer, Beat):
            self.signature_refusal = None
            self.last_beat = self.last_beat.apply_answer(answer, sent, fields or {})
            self.due = sent + self.period
            if answer.status is not Status.STALLED:
                self.expires = sent + self.ttl
            if answer.cancel_requested and not self.cancel_requested:
                self.cancel_requested = True
                self._interrupt()
        elif isinstance(answer, LeaseConflictError | NotFound) or answer.code == "invalid_transition":
            self.refusal = answer
            self.mark_lost()
        elif isinstance(answer, SignatureInvalid):
            self.signature_refusal = answer

    def apply_start(self, change: Change, sent: float) -> None:
        """User code begins, which is a beat too."""
        self.last_beat = self.last_beat.apply_start(change, sent)

    def apply_resume(self, job: Job, sent: float) -> None:
        """It had stalled, and holds its job again."""
        self.expires = sent + self.ttl
        self.last_beat = LastBeat.of(job.record, sent)

    def mark_lost(self) -> None:
        if not self.lost:
            self.lost = True
            self._interrupt()

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


def _given_fields(stage: str | None, progress: int | None) -> dict[str, Any]:
    """What was said; what was not must not overtake news that wait to be sent."""
    return {name: value for name, value in (("stage", stage), ("progress", progress)) if value is not None}


class AsyncContext(AsyncEnqueueMethods, Context):  # type: ignore[misc]
    """The same for an `async def` handler: what talks to the ledger is awaited."""

    async def beat(self, *, stage: str | None = None, progress: int | None = None) -> Beat:  # type: ignore[override]
        return await self._runtime.run_in_thread(super().beat, stage=stage, progress=progress)

    async def checkpoint(self, state: Any) -> None:  # type: ignore[override]
        await self._runtime.run_in_thread(super().checkpoint, state)

    async def undo(self, handler: Any, /, **args: Any) -> None:  # type: ignore[override]
        await self._runtime.run_in_thread(super().undo, handler, **args)

    async def request_assist(self, wanted: bool = True) -> None:  # type: ignore[override]
        await self._runtime.run_in_thread(super().request_assist, wanted)

    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Awaitable[Job]:  # type: ignore[override]
        return self._runtime.run_in_thread(Context._enqueue, self, handler, args, kwargs)  # noqa: SLF001 - its own

    def options(self, **options: Unpack[ChildOptions]) -> AsyncChildEnqueuer:  # type: ignore[override]
        children = super().options(**options)
        return AsyncChildEnqueuer(
            lambda handler, args, kwargs: self._runtime.run_in_thread(children.enqueue, handler, *args, **kwargs)
        )


class Permit:
    """A step that was allowed. Leaving it tells nobody anything; it marks the step in the code."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> Context:
        self._context.may_proceed()
        return self._context

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None
