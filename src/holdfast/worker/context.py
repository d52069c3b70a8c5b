"""What a handler is given: its job, its fence, and the ways to prove life, keep a place, and learn that it must stop."""

from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from holdfast.core.liveness import LivenessDenialReason, LivenessHeartbeatReceiptV1
from holdfast.core.model import Fence, Status
from holdfast.core.receipts import check_gate
from holdfast.errors import GateDenied, HoldfastError, JobCancelled, LeaseConflictError, NotFound, SignatureInvalid, Unavailable
from holdfast.ledger import Beat, Change, Job
from holdfast.ledger.options import ChildOptions
from holdfast.worker.enqueues import AsyncChildren, AsyncEnqueues, Children, Enqueues, check_options
from holdfast.worker.pulse import Pulse

if TYPE_CHECKING:
    from holdfast.worker.shift import Shift


class Context(Enqueues):
    """One attempt at one job, as its handler sees it. Safe to use from any thread of the handler's."""

    lost = False
    """The lease is over: somebody else may have the job. Nothing this attempt writes is accepted any more."""
    refusal: HoldfastError | None = None
    """The refusal that told that the lease is over."""
    is_loss_noted = False
    """Its loss is logged, which is done once."""
    asked_to_stop = False
    """Somebody asked for a soft cancel."""
    asked_to_leave = False
    """The worker is about to stop and would hand the job back."""
    unsigned: SignatureInvalid | None = None
    """Why its newest beat was refused, where that was for want of a signature: nothing it does is on record then."""
    timed_out = False
    abandoned = False
    handed = False
    """Its outcome is on the way to the ledger."""
    began = ended = -1.0
    """By the monotonic clock; below zero until then."""
    deadline: float | None = None
    traceparent: str | None = None
    """The span that the handler ran in, where this program traces."""
    on_trouble: "Callable[[Context], None] | None" = None
    _news: dict[str, Any] | None = None
    """What was said and not yet sent."""
    _sending: dict[str, Any] | None = None
    """What the worker's own beat tells at this moment: it is not known to be on record."""
    _said: dict[str, Any] | None = None
    """The last stage and progress that the handler has said. None where it has said nothing."""
    _pulse: Pulse | None = None
    """None while the claim is its newest beat."""
    _kept: Any = msgspec.UNSET

    def __init__(self, job: Job, handler: Any, shift: "Shift", period: float, ttl: float, claimed: float) -> None:
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
        self._shift = shift

    # Knowing

    @property
    def cancelled(self) -> bool:
        """The handler should come to an end: a cancel was asked for, its worker stops, its time is up, or its lease is lost."""
        self._shift.look(self)
        return self.asked_to_stop or self.lost or self.timed_out or self.asked_to_leave

    @property
    def restored(self) -> Any:
        """What the newest checkpoint of this job holds, of this attempt or of an earlier one; None where there is none."""
        return self.job.checkpoint if isinstance(self._kept, msgspec.UnsetType) else self._kept

    def check_cancelled(self) -> None:
        """Raise where the handler should stop: JobCancelled when asked to, LeaseConflictError when the lease is lost."""
        stop = self.cancelled
        self._check_lease()
        if stop:
            raise JobCancelled(f"job {self.job.id} is to stop: {self._why()}", job_id=self.job.id)

    def may_proceed(self) -> "Passage":
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
            self._shift.overdue(self)
            self._check_gate()
        return Passage(self)

    def receipt(self) -> LivenessHeartbeatReceiptV1 | None:
        """The receipt of this attempt, dated by the newest beat that the ledger has answered; None once the lease is lost."""
        return None if self.lost else self.pulse.receipt(self.job.record, self.fence)

    def _check_gate(self) -> None:
        check_gate(self.job.record, self.receipt(), self.pulse.now(self._shift.monotonic()))

    def _check_signed(self) -> None:
        refused = self.unsigned
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
        if not self.lost and self._shift.monotonic() >= self.expires:
            self._shift.overdue(self)
        if self.lost or self._shift.monotonic() >= self.expires:
            raise LeaseConflictError(
                f"job {self.job.id}: the lease of attempt {self.job.attempt} is over",
                job_id=self.job.id,
                attempt=self.job.attempt,
            )

    def _why(self) -> str:
        if self.timed_out:
            return "its time is up"
        return "somebody cancelled it" if self.asked_to_stop else "its worker stops"

    # Telling

    def beat(self, *, stage: str | None = None, progress: int | None = None) -> Beat:
        """Prove life now, and learn at once whether to stop. Beats are sent by themselves; this is for the impatient."""
        return self._beat(**_told(stage, progress))

    def progress(self, done: int | None = None, *, stage: str | None = None) -> None:
        """Tell how far the job is; sent with the next beat, within a second or so. Never waits for the ledger."""
        self._shift.check_news(stage, done)
        self.tell(_told(stage, done))

    def checkpoint(self, state: Any) -> None:
        """Keep `state` (any JSON value) durably: after a crash the next attempt finds it in `restored`."""
        self._beat(checkpoint=state)
        self._kept = state

    def undo(self, handler: Any, /, **args: Any) -> None:
        """Register, durably, how to undo what comes next: should this job not succeed in the end, all such steps run in reverse
        order as a job of their own. `handler` is a registered handler or its kind."""
        kind, plain = self._shift.named(handler, args)
        self._beat(undo={"kind": kind, "args": plain})

    def request_assist(self, wanted: bool = True) -> None:
        """Ask for an operator's help."""
        self._beat(assist_requested=wanted)

    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Job:
        """A new job that belongs to this one: it has its correlation id and its trace."""
        return self._shift.enqueue_child(self.job, handler, args, kwargs, {})

    def options(self, **options: Unpack[ChildOptions]) -> Children:
        """Enqueue such jobs with the options of `ledger.enqueue`: `job.options(depends_on=[first]).enqueue(handler, …)`."""
        check_options("enqueue", options)
        return Children(lambda handler, args, kwargs: self._shift.enqueue_child(self.job, handler, args, kwargs, options))

    def _beat(self, **told: Any) -> Beat:
        sent = self._shift.monotonic()
        news = self.take_news() or {}
        try:
            answer = self._shift.ledger.heartbeat(self.fence, **{**news, **told})
        except Unavailable:
            self._news = {**news, **(self.take_news() or {})} or None
            raise
        except HoldfastError as error:
            self.heard(error, sent)
            raise
        self.heard(answer, sent, {**news, **told})
        words = {name: told[name] for name in _WORDS if name in told}
        if words:
            self._said = {**(self._said or {}), **words}
            self._shift.said(words)
        return answer

    # What the worker's own parts use

    def take_news(self) -> dict[str, Any] | None:
        news, self._news = self._news, None
        return news

    def tell(self, news: dict[str, Any]) -> None:
        """To be sent with the next beat; what was told before and not yet sent is overtaken."""
        self._said = {**(self._said or {}), **news}
        self._news = {**(self._news or {}), **news}
        self._shift.ring()

    def send_news(self) -> dict[str, Any] | None:
        """What the worker's next beat tells; `sent_news` says what came of it. Once it has ended, its outcome tells it."""
        self._sending = None if self.handed else self.take_news()
        return self._sending

    def sent_news(self, *, again: bool) -> None:
        """The beat was answered; with `again`, it has to be sent once more. What was told since overtakes it."""
        news, self._sending = self._sending, None
        if news and again:
            self._news = {**news, **(self._news or {})}
            self._shift.ring()

    @property
    def has_news(self) -> bool:
        return self._news is not None

    @property
    def is_sending(self) -> bool:
        """Whether a beat of its worker is on its way with what the handler said."""
        return self._sending is not None

    def unsaid(self) -> dict[str, Any] | None:
        """What the handler said last, unless that is on record as far as is known here."""
        said = self._said
        if said is None:
            return None
        newest = self.pulse
        known = self._sending is None and (newest.stage, newest.progress) == (
            said.get("stage", newest.stage),
            said.get("progress", newest.progress),
        )
        return None if known else said

    @property
    def pulse(self) -> Pulse:
        """Its newest beat."""
        return self._pulse or Pulse.of(self.job.record, self._claimed)

    @pulse.setter
    def pulse(self, newest: Pulse) -> None:
        self._pulse = newest

    def heard(self, answer: Beat | HoldfastError, sent: float, told: Mapping[str, Any] | None = None) -> None:
        """The ledger's answer to a beat that was sent at this monotonic time, with what it told."""
        if isinstance(answer, Beat):
            self.unsigned = None
            self.pulse = self.pulse.after(answer, sent, told or {})
            self.due = sent + self.period
            if answer.status is not Status.STALLED:
                self.expires = sent + self.ttl
            if answer.cancel_requested and not self.asked_to_stop:
                self.asked_to_stop = True
                self._trouble()
        elif isinstance(answer, LeaseConflictError | NotFound) or answer.code == "invalid_transition":
            self.refusal = answer
            self.lose()
        elif isinstance(answer, SignatureInvalid):
            self.unsigned = answer

    def begun(self, change: Change, sent: float) -> None:
        """User code begins, which is a beat too."""
        self.pulse = self.pulse.begun(change, sent)

    def came_back(self, job: Job, sent: float) -> None:
        """It had stalled, and holds its job again."""
        self.expires = sent + self.ttl
        self.pulse = Pulse.of(job.record, sent)

    def lose(self) -> None:
        if not self.lost:
            self.lost = True
            self._trouble()

    def ask_to_leave(self) -> None:
        if not self.asked_to_leave:
            self.asked_to_leave = True
            self._trouble()

    def time_out(self) -> None:
        if not self.timed_out:
            self.timed_out = True
            self._trouble()

    def _trouble(self) -> None:
        tell = self.on_trouble
        if tell is not None:
            tell(self)


_WORDS = ("stage", "progress")


def _told(stage: str | None, progress: int | None) -> dict[str, Any]:
    """What was said; what was not must not overtake news that wait to be sent."""
    return {name: value for name, value in (("stage", stage), ("progress", progress)) if value is not None}


class AsyncContext(AsyncEnqueues, Context):  # type: ignore[misc]
    """The same for an `async def` handler: what talks to the ledger is awaited."""

    async def beat(self, *, stage: str | None = None, progress: int | None = None) -> Beat:  # type: ignore[override]
        return await self._shift.beside(super().beat, stage=stage, progress=progress)

    async def checkpoint(self, state: Any) -> None:  # type: ignore[override]
        await self._shift.beside(super().checkpoint, state)

    async def undo(self, handler: Any, /, **args: Any) -> None:  # type: ignore[override]
        await self._shift.beside(super().undo, handler, **args)

    async def request_assist(self, wanted: bool = True) -> None:  # type: ignore[override]
        await self._shift.beside(super().request_assist, wanted)

    def _enqueue(self, handler: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Awaitable[Job]:  # type: ignore[override]
        return self._shift.beside(Context._enqueue, self, handler, args, kwargs)  # noqa: SLF001 - its own

    def options(self, **options: Unpack[ChildOptions]) -> AsyncChildren:  # type: ignore[override]
        children = super().options(**options)
        return AsyncChildren(lambda handler, args, kwargs: self._shift.beside(children.enqueue, handler, *args, **kwargs))


class Passage:
    """A step that was allowed. Leaving it tells nobody anything; it marks the step in the code."""

    __slots__ = ("_context",)

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> Context:
        self._context.may_proceed()
        return self._context

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None
