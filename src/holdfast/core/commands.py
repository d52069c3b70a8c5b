"""Requests to change something, one frozen record a verb. Shape and limits are checked before one of these is made."""

from typing import Literal, Protocol

import msgspec

from holdfast.core.model import (
    Actor,
    EventRecord,
    EventType,
    FailureStage,
    Fence,
    JobRecord,
    Micros,
    Policy,
    ReasonCode,
    StallReason,
)
from holdfast.core.payloads import BeatPayload


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
    """`actor` and `request_id` say who asked and how a repetition is recognised; they are not part of the body."""

    actor: Actor
    request_id: str | None = None


class Enqueue(Command, frozen=True, kw_only=True):
    """One new job. `payload` is the encoded body of its `enqueued` event; the other fields are what the row needs of it."""

    queue: str
    kind: str
    payload: bytes
    priority: int = 0
    available_at: Micros | None = None
    delay_us: int = 0
    dedupe_key: str | None = None
    dedupe_forever: bool = False
    tier: str | None = None
    override: bytes | None = None
    correlation_id: str | None = None
    trace_id: str | None = None
    replay_of: int | None = None
    reason: str | None = None
    """Why a job is replayed."""
    bare: bool = False
    """No option was given: everything below `payload` has its default."""
    job_id: int | None = None
    """Drawn beforehand, where others have to know it before the job is there."""


class EnqueueLinked(Enqueue, frozen=True, kw_only=True):
    """One of a call in which some jobs wait for others.

    `depends_on` are ids; `after` are places of the same call, whose ids are not known yet: they join the payload once drawn.
    """

    depends_on: tuple[int, ...] = ()
    after: tuple[int, ...] = ()


class ClaimNext(Command, frozen=True, kw_only=True):
    queues: tuple[str, ...]
    limit: int
    token: str
    kinds: tuple[str, ...] | None = None
    start: bool = False


class JobCommand(Command, frozen=True, kw_only=True):
    """A command on one job that exists."""

    job_id: int
    expected_rev: int | None = None
    cause: str | None = None
    """The event of another job that brought this about."""


class ClaimJob(JobCommand, frozen=True, kw_only=True):
    """`policy`, `paused`, `fresh_since` and `token` are what the ledger found and drew for it, not what the caller said.

    `signed` is for its own holder, whose claim is a beat. With `keeps_ttl`, `ttl_ms` is for a new lease only: a renewal keeps
    the length that the lease has.
    """

    token: str
    ttl_ms: int | None = None
    keeps_ttl: bool = False
    policy: Policy | None = None
    paused: bool = False
    fresh_since: Micros | None = None
    signed: SignedStatement | None = None


class HolderCommand(JobCommand, frozen=True, kw_only=True):
    """`signed` is what the holder has signed for it; with that, a fence may be without its token."""

    fence: Fence
    signed: SignedStatement | None = None


class Start(HolderCommand, frozen=True, kw_only=True):
    pass


class Heartbeat(HolderCommand, frozen=True, kw_only=True):
    beat: BeatPayload


class Objection(msgspec.Struct, frozen=True):
    """What a validator or a conflict detector said against a result."""

    message: str
    retryable: bool = False


class Complete(HolderCommand, frozen=True, kw_only=True):
    payload: bytes
    """The encoded body of its `succeeded` event."""
    objection: Objection | None = None
    """Why it is refused where it would otherwise be accepted."""


class CompleteInBatch(Complete, frozen=True, kw_only=True):
    """A completion of many at once, whose answer says no more than that it is done."""


class CompleteGated(Complete, frozen=True, kw_only=True):
    """A completion that is refused unless its holder passes the gate in the very transaction that records it."""


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
    """By the system past the limit, or by the holder (with its fence) at any time."""

    fence: Fence | None = None
    reason: StallReason | None = None
    error: bytes | None = None
    """What a holder has to say of it; the stage and the reason code are the error's."""
    failure_stage: FailureStage | None = None
    reason_code: ReasonCode | None = None
    fresh_since: Micros | None = None
    signed: SignedStatement | None = None
    """By the holder, or by a server elsewhere."""


class Resume(JobCommand, frozen=True, kw_only=True):
    """By the system after a beat, or by the last holder (with its fence) as its own proof of life."""

    fence: Fence | None = None
    reason: str | None = None
    signed: SignedStatement | None = None
    """By the holder, or by a server elsewhere."""


class Requeue(JobCommand, frozen=True, kw_only=True):
    jitter: float = 1.0
    reason: str | None = None


class Unblock(JobCommand, frozen=True, kw_only=True):
    """The last job that this one waited for has succeeded."""


class MoveJob(JobCommand, frozen=True, kw_only=True):
    """`key_holder` is what the ledger found: the job in the other queue that has this job's dedupe key."""

    queue: str
    reason: str | None = None
    key_holder: int | None = None


class Reprioritise(JobCommand, frozen=True, kw_only=True):
    priority: int
    reason: str | None = None


class Reschedule(JobCommand, frozen=True, kw_only=True):
    """Available from a moment, or so long from now."""

    available_at: Micros | None = None
    delay_us: int = 0
    reason: str | None = None


class Sweep(JobCommand, frozen=True, kw_only=True):
    """Whatever is due for one job: stall, resume, requeue, exhaust, or a cancel that outlived its grace.

    Silence before `fresh_since` is not held against anybody: the clock stepped then, or nobody could reach the store.
    """

    jitter: float = 1.0
    fresh_since: Micros | None = None


class Compensate(JobCommand, frozen=True, kw_only=True):
    """Whatever is due for the undo steps of one finished job: start them, or note how they ended."""


class ContinueCascade(JobCommand, frozen=True, kw_only=True):
    """Go on telling of one job's end: one transaction was not enough for all whom it brings down."""


class LinkDependencies(JobCommand, frozen=True, kw_only=True):
    """Count one waiting job as a dependent of the jobs it waits for, or tell it of their end."""


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


class ReplayMany(Command, frozen=True, kw_only=True):
    """The dead letters that fit, each replayed."""

    limit: int
    """How many are replayed, at most. With `again`, how many are looked at."""
    again: bool = False
    """Also those that have been replayed."""
    reason: str | None = None
    after: int = 0
    queue: str | None = None
    kind: str | None = None
    reason_code: ReasonCode | None = None
    failure_stage: FailureStage | None = None
    since: Micros | None = None
    until: Micros | None = None
    discarded: bool = False
