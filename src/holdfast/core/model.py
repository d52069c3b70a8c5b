"""The records of jobs, events, actors, fences and policies. All are frozen. All times are microseconds since 1970, UTC."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

Micros = int
"""Microseconds since 1970-01-01T00:00:00Z."""
NEVER: Micros = 253_402_300_799_999_999
"""`available_at` of a job that waits for others. No caller can give a time so late, so a claim needs no other check."""


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
ACTIVE = HELD | {Status.STALLED}
"""The statuses of jobs with a holder, who may be silent. They use the units of their limits, and the sweeper looks at them."""
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


ESCALATING = frozenset({StallReason.NO_HEARTBEAT, StallReason.LEASE_EXPIRED, StallReason.NO_PROGRESS, StallReason.WORKER_ERROR})
"""Stalls that need an operator, if the policy requires operator coverage: a lost or stuck worker. An orderly release and an error
that is retried do not."""


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
    REPLACED = "replaced"
    POSTPONED = "postponed"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLED = "cancelled"
    DEAD_LETTERED = "dead_lettered"
    COMPENSATED = "compensated"
    COMPENSATION_FAILED = "compensation_failed"
    DISCARDED = "discarded"


ASSIST_REQUESTED = "ASSIST_REQUESTED"
"""The reason of the first heartbeat with which a holder requests assistance."""

RESERVED_PREFIX = "holdfast."
"""Kinds and dedupe keys with this prefix are reserved for jobs that the ledger makes itself."""
UNDO_KIND = "holdfast.undo"
"""The kind of a job that undoes another one."""

NOTES = frozenset({EventType.COMPENSATED, EventType.COMPENSATION_FAILED, EventType.DISCARDED})


ON_FAILURE_DEFAULT = "dead_letter"
"""What happens to a waiting job if one of its dependencies ends without success, unless the enqueue gives another choice."""


class Role(StrEnum):
    CLIENT = "client"
    WORKER = "worker"
    OPERATOR = "operator"
    SYSTEM = "system"


class Actor(msgspec.Struct, frozen=True, order=True):
    """The cause of a command or an event. Only workers have an incarnation, and they always do, so `parse` is unambiguous."""

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
"""Separates the random part of a token from the `signed` setting of its attempt's policy."""


class Fence(msgspec.Struct, frozen=True, gc=False):
    """The right to write to one attempt of one job. `token` is a secret that proves that the caller is the holder.

    `worker` and `incarnation` name the worker that it was issued to. They scope request ids and are part of signed statements.
    No decision depends on them.
    """

    job_id: int
    attempt: int
    token: str
    worker: str = ""
    incarnation: str = ""

    @property
    def signed(self) -> str:
        """The `signed` setting of this attempt's policy. It is part of the token, so a write does not have to look it up."""
        return self.token.partition(SIGNED_SEPARATOR)[2] or "none"

    def __repr__(self) -> str:
        return f"Fence(job_id={self.job_id}, attempt={self.attempt}, worker={self.worker!r})"


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The resolved rules of one lease. `claimed` and `stalled` events carry a snapshot of it."""

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
        """The suffix of the token of each lease under this policy."""
        return "" if self.signed == "none" else SIGNED_SEPARATOR + self.signed


class EventRecord(msgspec.Struct, frozen=True, gc=False):
    """One accepted change. `rev` is the job's revision after it. `payload` is encoded JSON, and its shape depends on `type`."""

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
    """The signer's time if the event is signed. None means the same as received_at."""
    pos: int = 0
    """The position in the ledger's total order. 0 until the store has assigned one."""
    correlation_id: str = ""
    trace_id: str | None = None
    version: int = 1
    key_id: str | None = None
    signature: bytes | None = None
    statement: bytes | None = None
    """The signed bytes."""

    @property
    def id(self) -> str:
        return f"{self.job_id}-{self.rev}"


class Draw(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The units of a limit that a job takes while it is held. `key` is the value that the limit counts by, "" without one."""

    limit: str
    units: int = 1
    key: str = ""


OWN_LABEL = "worker:"
"""The prefix of the label that each worker has by itself. No other label begins with it."""


def own_label(worker: str) -> str:
    """Return the label that a worker of this name has by itself."""
    return f"{OWN_LABEL}{worker}"


def required_labels(worker: str, labels: Iterable[str]) -> tuple[str, ...]:
    """Return the labels that a job requires which is for one worker, "" for any."""
    return ((own_label(worker),) if worker else ()) + tuple(labels)


def only_worker(requires: Sequence[str]) -> str:
    """Return the worker whose own label a job requires, "" if it requires none."""
    return requires[0].removeprefix(OWN_LABEL) if requires and requires[0].startswith(OWN_LABEL) else ""


class Flow(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """The options of a job that decide when it may start, besides its priority and its time."""

    partition: str = ""
    limits: tuple[Draw, ...] = ()
    requires: tuple[str, ...] = ()
    """Labels that its worker must have: the own label of its only worker, if it is for one, then the others, sorted."""

    @property
    def for_worker(self) -> str:
        """The only worker that may have it, "" for any."""
        return only_worker(self.requires)

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that it requires, without a worker's own."""
        return self.requires[1:] if self.for_worker else self.requires


class JobRecord(msgspec.Struct, frozen=True, gc=False):
    """A job's row. It is the fold of the job's events."""

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
    """The signer's counter in the newest signed event of this attempt. A statement must have a higher one to be accepted."""
    last_owner: str | None = None
    last_lease_expires_at: Micros | None = None
    last_error: bytes | None = None
    stall_reason: str | None = None
    stalled_at: Micros | None = None
    revived_at: Micros | None = None
    """When the newest heartbeat since the stall arrived. None if there was none."""
    cancel_reason: str | None = None
    cancel_requested_at: Micros | None = None
    reason_code: str | None = None
    failure_stage: str | None = None
    result: bytes | None = None
    checkpoint: bytes | None = None
    """The newest checkpoint of any holder, for this attempt or a later one to continue from."""
    undo_owed: int = 0
    """The number of registered undo steps that have to run if the job does not succeed."""
    note: str | None = None
    dedupe_key: str | None = None
    dedupe_forever: bool = False
    tier: str | None = None
    trace_id: str | None = None
    replay_of: int | None = None
    override: bytes | None = None
    """The policy fields that were given at enqueue, as JSON. None if there were none."""
    policy: Policy | None = None
    """The policy snapshot of the newest attempt. None before the first claim."""
    token: str | None = None
    """The secret of the newest fence. It is not part of the history: events never carry it."""
    depends_on: tuple[int, ...] = ()
    """The jobs that it was enqueued to wait for, by ascending id."""
    on_dependency_failure: str = ON_FAILURE_DEFAULT
    wanted_at: Micros | None = None
    """When it would be available without its dependencies. None if it has no dependencies."""
    dedupe_until: Micros | None = None
    """Until when it keeps its dedupe key also after its end. None if there is no such time."""
    waits_for: tuple[int, ...] = ()
    """The jobs it still waits for. A replay takes the place of the job that it repeats. The history does not say which
    dependencies are left: a fold of the events has all of them here until the job is unblocked or ends."""
    flow: Flow | None = None
    """Its partition, limits, labels and worker. None if it has none of these."""
    group: str | None = None
    """The group that it joined."""

    @property
    def is_waiting(self) -> bool:
        """Whether the job waits for other jobs."""
        return self.status is Status.QUEUED and self.available_at == NEVER

    def is_of(self, who: Actor) -> bool:
        """Return whether the newest attempt, held or not, belongs to this worker in this incarnation."""
        return (self.owner or self.last_owner, self.incarnation) == (who.name, who.incarnation)

    @property
    def held_by(self) -> dict[str, Any]:
        """The job's current holder and state, as context for a refusal."""
        return {
            "job_id": self.id,
            "status": self.status.value,
            "attempt": self.attempt,
            "rev": self.rev,
            "holder": self.owner,
            "lease_expires_at": self.lease_expires_at,
        }
