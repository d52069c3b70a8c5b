"""Commands: requests to change jobs, one frozen record per verb. Shape and limits are checked before a command is made."""

from typing import Any, Literal, Protocol

import msgspec

from holdfast.core.flow import FlowRefusal
from holdfast.core.model import (
    Actor,
    EventRecord,
    EventType,
    FailureStage,
    Fence,
    Flow,
    JobRecord,
    Micros,
    Policy,
    ReasonCode,
    StallReason,
)
from holdfast.core.payloads import BeatPayload, EnqueuedPayload, json_bytes


class SignedStatement(Protocol):
    """A statement that was signed for a command. `holdfast.proof` makes them; the core knows no keys and no formats."""

    @property
    def key_id(self) -> str: ...
    @property
    def signature(self) -> bytes: ...
    @property
    def statement(self) -> bytes: ...
    @property
    def signer(self) -> Actor: ...
    @property
    def signed_at(self) -> Micros: ...
    @property
    def attempt(self) -> int: ...
    @property
    def counter(self) -> int | None:
        """Rises with every statement of one worker's incarnation."""

    def check_holder(self, job: JobRecord, command: "JobCommand", holder: Actor, now: Micros) -> None:
        """Refuse a statement that is not the holder's about this command on this attempt."""

    def check_server(self, job: JobRecord, now: Micros) -> None:
        """Refuse a server's statement about another holder, or of another time."""

    def covers(self, event: EventRecord) -> bool:
        """Whether the statement belongs on this event of its command."""

    def attach(self, job: JobRecord, event: EventRecord) -> EventRecord:
        """Return the event with the statement on it."""


class Command(msgspec.Struct, frozen=True, tag=True, kw_only=True, gc=False):
    """The base of all commands.

    `actor` gives the command. A command with the `request_id` of an earlier one is a repetition. Neither is part of the body.
    """

    actor: Actor
    request_id: str | None = None


class Enqueue(Command, frozen=True, kw_only=True):
    """Make a new job. `payload` is the encoded body of its `enqueued` event. The other fields repeat what the row needs."""

    queue: str
    kind: str
    payload: bytes
    priority: int = 0
    available_at: Micros | None = None
    delay_us: int = 0
    dedupe_key: str | None = None
    dedupe_forever: bool = False
    dedupe_for_us: int = 0
    """How long the job keeps its dedupe key also after its end, from now on."""
    on_duplicate: str = "keep"
    postpone_max_us: int = 0
    tier: str | None = None
    override: bytes | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    replay_of: int | None = None
    flow: Flow | None = None
    group: str | None = None
    """The group that the job joins. A replay takes the place of a job in its group after it was made."""
    reason: str | None = None
    """The reason of a replay."""
    bare: bool = False
    """True if no option was given: everything below `payload` has its default."""
    job_id: int | None = None
    """The id, if it was drawn in advance because other jobs refer to it."""


class EnqueueLinked(Enqueue, frozen=True, kw_only=True):
    """Make a new job in a call in which some jobs wait for others.

    `depends_on` are ids. `after` are indexes of other jobs of the same call. Their ids are added to the payload once drawn.
    """

    depends_on: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


def enqueue_of(body: EnqueuedPayload, **others: Any) -> Enqueue:
    """Return the command that makes the job of a payload. `others` are the fields of the command that no payload has."""
    command = EnqueueLinked if body.depends_on else Enqueue
    shared = {name: getattr(body, name) for name in command.__struct_fields__ if name in EnqueuedPayload.__struct_fields__}
    return command(payload=body.encode(), override=json_bytes(body.policy), **shared, **others)


class ClaimNext(Command, frozen=True, kw_only=True):
    queues: tuple[str, ...]
    limit: int
    token: str
    kinds: tuple[str, ...] | None = None
    start: bool = False
    labels: tuple[str, ...] = ()
    """What the worker has, for jobs that require it."""


class JobCommand(Command, frozen=True, kw_only=True):
    """A command on one existing job."""

    job_id: int
    expected_rev: int | None = None
    cause: str | None = None
    """The id of the event of another job that caused this command."""


class ClaimJob(JobCommand, frozen=True, kw_only=True):
    """Claim one job by id. The ledger sets `policy`, `paused`, `refusal`, `fresh_since` and `token`, not the caller.

    `signed` is for the current holder, whose claim counts as a heartbeat. With `keeps_ttl`, `ttl_ms` applies to a new lease
    only, and a renewal keeps the current length.
    """

    token: str
    ttl_ms: int | None = None
    keeps_ttl: bool = False
    policy: Policy | None = None
    paused: bool = False
    labels: tuple[str, ...] = ()
    refusal: FlowRefusal | None = None
    """Why flow control does not let the worker have the job now. The ledger sets it."""
    fresh_since: Micros | None = None
    signed: SignedStatement | None = None


class HolderCommand(JobCommand, frozen=True, kw_only=True):
    """A command of a job's holder. If `signed` has the holder's statement, the fence may lack its token."""

    fence: Fence
    signed: SignedStatement | None = None


class Start(HolderCommand, frozen=True, kw_only=True):
    pass


class Heartbeat(HolderCommand, frozen=True, kw_only=True):
    beat: BeatPayload


class Objection(msgspec.Struct, frozen=True):
    """The reason why a validator or a conflict detector refuses a result."""

    message: str
    retryable: bool = False


class Complete(HolderCommand, frozen=True, kw_only=True):
    payload: bytes
    """The encoded body of its `succeeded` event."""
    objection: Objection | None = None
    """Set if a validator refuses the result. It applies only if the completion would otherwise be accepted."""


class Settle(Complete, frozen=True, kw_only=True):
    """A completion by `settle_many`. Its answer says only that the job is completed."""


class CompleteGated(Complete, frozen=True, kw_only=True):
    """A completion that is refused unless its holder passes the gate in the same transaction."""


class Fail(HolderCommand, frozen=True, kw_only=True):
    error: bytes
    retryable: bool = True
    reason_code: ReasonCode | None = None
    failure_stage: FailureStage | None = None
    retry_after_us: int | None = None
    jitter: float = 1.0


class Release(HolderCommand, frozen=True, kw_only=True):
    reason: str | None = None


class AcknowledgeCancel(HolderCommand, frozen=True, kw_only=True):
    reason: str | None = None


class Stall(JobCommand, frozen=True, kw_only=True):
    """Stall a held job: by the system past the limit, or by the holder (with its fence) at any time."""

    fence: Fence | None = None
    reason: StallReason | None = None
    error: bytes | None = None
    """The error that the holder reports. Stage and reason code belong to the error."""
    failure_stage: FailureStage | None = None
    reason_code: ReasonCode | None = None
    fresh_since: Micros | None = None
    signed: SignedStatement | None = None
    """The statement of the holder, or of another server."""


class Resume(JobCommand, frozen=True, kw_only=True):
    """Resume a stalled job: by the system after a heartbeat, or by the last holder (with its fence) as its proof of life."""

    fence: Fence | None = None
    reason: str | None = None
    signed: SignedStatement | None = None
    """The statement of the holder, or of another server."""


class Requeue(JobCommand, frozen=True, kw_only=True):
    jitter: float = 1.0
    reason: str | None = None


class Unblock(JobCommand, frozen=True, kw_only=True):
    """Make a waiting job available: the last job that it waited for has succeeded."""


class MoveJob(JobCommand, frozen=True, kw_only=True):
    """Move a queued job. The ledger sets `key_holder` to the job in the other queue that has the same dedupe key."""

    queue: str | None = None
    """None for its own queue."""
    for_worker: str | None = None
    """The only worker that may have it from now on, "" for any. None does not change it."""
    reason: str | None = None
    key_holder: int | None = None


class Reprioritise(JobCommand, frozen=True, kw_only=True):
    priority: int
    reason: str | None = None


class Reschedule(JobCommand, frozen=True, kw_only=True):
    """Make a queued job available at another time: `available_at`, or `delay_us` from now."""

    available_at: Micros | None = None
    delay_us: int = 0
    reason: str | None = None


class Replace(JobCommand, frozen=True, kw_only=True):
    """Give a queued job the arguments of a later call with the same dedupe key, and its priority, tier, policy and flow."""

    args: bytes
    priority: int = 0
    tier: str | None = None
    override: bytes | None = None
    flow: Flow | None = None


class Postpone(Replace, frozen=True, kw_only=True):
    """The same, and make the job available `delay_us` from now, but at most `max_us` after it was enqueued."""

    delay_us: int
    max_us: int


class Sweep(JobCommand, frozen=True, kw_only=True):
    """Do what is due for one job: stall, resume, requeue, exhaust, or cancel it after its cancel grace.

    Silence before `fresh_since` does not count: until then the clock had stepped, or the store was out of reach.
    """

    jitter: float = 1.0
    fresh_since: Micros | None = None


class Compensate(JobCommand, frozen=True, kw_only=True):
    """Do what is due for the undo steps of one finished job: start them, or note how they ended."""


class ContinueCascade(JobCommand, frozen=True, kw_only=True):
    """Continue the cascade of one job's end: its dependents were too many for one transaction."""


class LinkDependencies(JobCommand, frozen=True, kw_only=True):
    """Record one waiting job as a dependent of the jobs it waits for, or apply their end to it."""


class Cancel(JobCommand, frozen=True, kw_only=True):
    hard: bool = False
    reason: str = "requested"


class DeadLetter(JobCommand, frozen=True, kw_only=True):
    reason_code: ReasonCode
    failure_stage: FailureStage | None = None
    error: bytes | None = None


class Assist(JobCommand, frozen=True, kw_only=True):
    on: bool
    reason: str | None = None


class Annotate(JobCommand, frozen=True, kw_only=True):
    note: Literal[EventType.DISCARDED, EventType.COMPENSATED, EventType.COMPENSATION_FAILED]
    reason: str | None = None


class Replay(JobCommand, frozen=True, kw_only=True):
    reason: str | None = None
    again: bool = True
    """Replay a job that has been replayed before, too."""
