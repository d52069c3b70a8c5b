"""The records everything else passes around. All frozen; all times are microseconds since 1970, UTC."""

from enum import StrEnum
from typing import Any

import msgspec

Micros = int
"""Microseconds since 1970-01-01T00:00:00Z."""
NEVER: Micros = 253_402_300_799_999_999
"""When a job is available that waits for others: later than any time a caller can give, so that no claim needs to look twice."""


class Status(StrEnum):
    QUEUED = "queued"
    CLAIMED = "claimed"
    RUNNING = "running"
    STALLED = "stalled"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead_lettered"


LIVE = frozenset({Status.QUEUED, Status.CLAIMED, Status.RUNNING, Status.STALLED})
HELD = frozenset({Status.CLAIMED, Status.RUNNING})
TERMINAL = frozenset(Status) - LIVE


class Phase(StrEnum):
    EXECUTING = "executing"
    ASSISTED = "assisted"
    ABORTING = "aborting"


class StallReason(StrEnum):
    NO_HEARTBEAT = "NO_HEARTBEAT"
    LEASE_EXPIRED = "LEASE_EXPIRED"
    NO_PROGRESS = "NO_PROGRESS"
    WORKER_ERROR = "WORKER_ERROR"
    TRANSIENT_ERROR = "TRANSIENT_ERROR"
    RELEASED = "RELEASED"
    OPERATOR_QUEUE_TIMEOUT = "OPERATOR_QUEUE_TIMEOUT"


class ReasonCode(StrEnum):
    """Why a job was dead-lettered."""

    PARSE_ERROR = "parse_error"
    VALIDATION_FAILED = "validation_failed"
    DEPENDENCY_UNAVAILABLE = "dependency_unavailable"
    TIMEOUT = "timeout"
    EXHAUSTED_RETRIES = "exhausted_retries"
    POLICY_VIOLATION = "policy_violation"
    INFRASTRUCTURE_FAILURE = "infrastructure_failure"
    COMPENSATION_FAILED = "compensation_failed"


class FailureStage(StrEnum):
    """Where in its work a job broke."""

    FETCH = "fetch"
    INPUT = "input"
    EXEC = "exec"
    OUTPUT = "output"
    COMMIT = "commit"


class EventType(StrEnum):
    ENQUEUED = "enqueued"
    CLAIMED = "claimed"
    STARTED = "started"
    HEARTBEAT = "heartbeat"
    ASSIST_STARTED = "assist_started"
    ASSIST_ENDED = "assist_ended"
    STALLED = "stalled"
    RESUMED = "resumed"
    REQUEUED = "requeued"
    UNBLOCKED = "unblocked"
    MOVED = "moved"
    REPRIORITISED = "reprioritised"
    RESCHEDULED = "rescheduled"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead_lettered"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"
    DISCARDED = "discarded"


ASSIST_REQUESTED = "ASSIST_REQUESTED"
"""The reason of a beat with which a holder begins to wish for assistance."""

RESERVED_PREFIX = "holdfast."
"""Kinds and dedupe keys that start like this are the ledger's own: nobody else makes jobs with them."""
UNDO_KIND = "holdfast.undo"
"""The kind of a job that undoes another one."""

NOTES = frozenset({EventType.COMPENSATED, EventType.COMPENSATION_FAILED, EventType.DISCARDED})


class Role(StrEnum):
    CLIENT = "client"
    WORKER = "worker"
    OPERATOR = "operator"
    SYSTEM = "system"


class Actor(msgspec.Struct, frozen=True, order=True):
    """Who did it. A worker always has an incarnation, nobody else ever has: so the text form reads back unambiguously."""

    role: Role
    name: str
    incarnation: str = ""

    def __str__(self) -> str:
        text = f"{self.role.value}:{self.name}"
        return f"{text}#{self.incarnation}" if self.role is Role.WORKER else text

    @classmethod
    def parse(cls, text: str) -> "Actor":
        role, _, rest = text.partition(":")
        if role != Role.WORKER:
            return cls(Role(role), rest)
        name, _, incarnation = rest.rpartition("#")
        return cls(Role.WORKER, name, incarnation)


SYSTEM = Actor(Role.SYSTEM, "ledger")


SIGNED_SEPARATOR = "+"
"""What separates the drawn part of a token from what its attempt's policy wants signed."""


class Fence(msgspec.Struct, frozen=True, gc=False):
    """The right to write to one attempt of one job. `token` is a secret: whoever has it is the holder.

    `worker` and `incarnation` are who it was issued to; they scope request ids, go into what is signed, and decide nothing.
    """

    job_id: int
    attempt: int
    token: str
    worker: str = ""
    incarnation: str = ""

    @property
    def signed(self) -> str:
        """What the policy of this attempt wants signed: a token says so itself, so that no write needs to look it up."""
        return self.token.partition(SIGNED_SEPARATOR)[2] or "none"

    def __repr__(self) -> str:
        return f"Fence(job_id={self.job_id}, attempt={self.attempt}, worker={self.worker!r})"


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The resolved rules of one lease, as they are snapshotted into `claimed` and `stalled`."""

    heartbeat_interval_ms: int = 10_000
    missed_beats_max: int = 3
    lease_ttl_ms: int = 60_000
    resume_window_ms: int = 0
    attempts_max: int = 5
    on_exhausted: str = "dead_letter"
    backoff_base_ms: int = 500
    backoff_max_ms: int = 60_000
    cancel_grace_ms: int = 30_000
    progress_timeout_ms: int | None = None
    requires_operator_coverage: bool = False
    signed: str = "none"

    @property
    def stall_after_ms(self) -> int:
        return self.heartbeat_interval_ms * self.missed_beats_max

    @property
    def token_tail(self) -> str:
        """What is put behind the drawn token of each lease under this policy."""
        return "" if self.signed == "none" else SIGNED_SEPARATOR + self.signed


class EventRecord(msgspec.Struct, frozen=True, gc=False):
    """One accepted change. `rev` is the job's revision after it; `payload` is JSON text as bytes, shaped by its type."""

    job_id: int
    rev: int
    type: EventType
    received_at: Micros
    actor: Actor
    attempt: int
    from_status: Status | None
    to_status: Status
    reason: str | None = None
    request_id: str | None = None
    cause: str | None = None
    payload: bytes | None = None
    policy: Policy | None = None
    at: Micros | None = None
    """The signer's time where the event is signed; None means the same as received_at."""
    pos: int = 0
    """The place in the ledger's total order; 0 until the store has given one."""
    correlation_id: str = ""
    trace_id: str | None = None
    version: int = 1
    key_id: str | None = None
    signature: bytes | None = None
    statement: bytes | None = None
    """What was signed, byte for byte."""

    @property
    def id(self) -> str:
        return f"{self.job_id}-{self.rev}"


class JobRecord(msgspec.Struct, frozen=True, gc=False):
    """A job's row: what its events fold to."""

    id: int
    queue: str
    kind: str
    status: Status
    rev: int
    attempt: int
    priority: int
    available_at: Micros
    created_at: Micros
    updated_at: Micros
    args: bytes
    correlation_id: str
    phase: Phase | None = None
    releases: int = 0
    owner: str | None = None
    incarnation: str | None = None
    claimed_at: Micros | None = None
    lease_expires_at: Micros | None = None
    last_beat_at: Micros | None = None
    started_at: Micros | None = None
    finished_at: Micros | None = None
    stage: str | None = None
    progress: int | None = None
    progressed_at: Micros | None = None
    assist_requested: bool = False
    counter: int | None = None
    """The signer's own count in the newest signed event of this attempt: whatever is not above it was seen before."""
    last_owner: str | None = None
    last_lease_expires_at: Micros | None = None
    last_error: bytes | None = None
    stall_reason: str | None = None
    stalled_at: Micros | None = None
    revived_at: Micros | None = None
    """When a beat last arrived after the stall; None while there was none."""
    cancel_reason: str | None = None
    cancel_requested_at: Micros | None = None
    reason_code: str | None = None
    failure_stage: str | None = None
    result: bytes | None = None
    checkpoint: bytes | None = None
    """What a holder last left for whoever goes on, this attempt or a later one."""
    undo_owed: int = 0
    """Undo steps that were registered and would have to run if the job came to nothing."""
    note: str | None = None
    dedupe_key: str | None = None
    dedupe_forever: bool = False
    tier: str | None = None
    trace_id: str | None = None
    replay_of: int | None = None
    override: bytes | None = None
    """The policy fields given with the job itself, as JSON; None where none were."""
    policy: Policy | None = None
    """The snapshot of the newest attempt; None before the first claim."""
    token: str | None = None
    """The secret of the newest fence. Not part of the history: events never carry it."""
    depends_on: tuple[int, ...] = ()
    """The jobs it was told to wait for, by ascending id."""
    on_dependency_failure: str = "wait"
    wanted_at: Micros | None = None
    """When it was to be available had it nobody to wait for; None where it has nobody."""
    waits_for: tuple[int, ...] = ()
    """Those it still waits for, replays in the place of what they repeat. A history alone does not know which are left: as far as
    it can tell, all are, until the job waits no longer."""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for other jobs."""
        return self.status is Status.QUEUED and self.available_at == NEVER

    def is_of(self, who: Actor) -> bool:
        """Whether the newest attempt is this worker's, in this incarnation, be it held, stalled or over."""
        return (self.owner or self.last_owner, self.incarnation) == (who.name, who.incarnation)

    @property
    def held_by(self) -> dict[str, Any]:
        """Who has the job now, as context for a refusal."""
        return {
            "job_id": self.id,
            "status": self.status.value,
            "attempt": self.attempt,
            "rev": self.rev,
            "holder": self.owner,
            "lease_expires_at": self.lease_expires_at,
        }
