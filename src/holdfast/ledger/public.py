"""The options that callers pass, and the records that they get.

Records have datetimes for times and Python values for JSON, which are decoded when they are first read.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict

import msgspec

from holdfast.core import model
from holdfast.core.model import Actor, EventType, FailureStage, Fence, Micros, Phase, Policy, ReasonCode, StallReason, Status
from holdfast.core.payloads import args_of
from holdfast.store.fleet import WorkerRow
from holdfast.store.rows import ClaimedJobs, row_attempt, row_id, row_kind, row_payload

Duration = str | float | timedelta
"""A text such as "30s", "5m" or "500ms"; a number of seconds; or a timedelta."""


class PolicyFields(TypedDict, total=False):
    """The fields of a policy. A field that is None is left to the next layer."""

    heartbeat_interval: Duration | None
    missed_beats_max: int | None
    lease_ttl: Duration | None
    resume_window: Duration | None
    attempts_max: int | None
    on_exhausted: Literal["dead_letter", "fail"] | None
    backoff_base: Duration | None
    backoff_max: Duration | None
    cancel_grace: Duration | None
    progress_timeout: Duration | None
    requires_operator_coverage: bool | None
    signed: Literal["none", "liveness", "all"] | None
    lease_widened: bool | None


class HandlerOptions(TypedDict, total=False):
    """Options for the jobs of a handler."""

    priority: int | None
    delay: Duration | None
    available_at: datetime | None
    dedupe_key: str | None
    dedupe: Literal["live", "forever"] | None
    dedupe_for: Duration | None
    on_duplicate: Literal["keep", "replace", "postpone"] | None
    postpone_max: Duration | None
    tier: str | None
    correlation_id: str | None
    trace_id: str | None
    depends_on: "Sequence[int | Job[Any]] | None"
    on_dependency_failure: Literal["wait", "cancel", "dead_letter"] | None
    limits: Mapping[str, int] | Sequence[str] | None
    partition: str | None
    requires: Sequence[str] | None
    for_worker: str | None
    group: str | None


class EnqueueOptions(HandlerOptions, total=False):
    """Options for a job besides its kind, arguments and queue."""

    policy: PolicyFields | None


class ChildOptions(EnqueueOptions, total=False):
    """The same with the queue, the request id and the actor. Without a queue, the handler's own is used."""

    queue: str
    request_id: str | None
    actor: str | Actor | None


class CallOptions(ChildOptions, total=False):
    """The same for a call that may run in an open transaction of the caller."""

    connection: Any


def flow_options(flow: model.Flow | None) -> dict[str, Any]:
    """Return the options of flow control as a caller gives them."""
    if flow is None:
        return {}
    return {
        "limits": {draw.limit: draw.units for draw in flow.limits} or None,
        "partition": flow.partition or None,
        "requires": list(flow.labels) or None,
        "for_worker": flow.for_worker or None,
    }


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R_co = TypeVar("R_co", covariant=True, default=Any)
    R = TypeVar("R", default=Any)
    S = TypeVar("S", bound=msgspec.Struct)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)
    R = TypeVar("R")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_decode = msgspec.json.Decoder().decode


@lru_cache(maxsize=256)
def to_datetime(at: Micros) -> datetime:
    return _EPOCH + timedelta(microseconds=at)


def to_micros(moment: datetime) -> Micros:
    return (moment - _EPOCH) // _MICROSECOND


def public_record(kind: "type[S]", row: Any, **own: Any) -> "S":
    """Return a record with the fields in `own`. The others are those of `row` with the same names, times as datetimes."""
    for name in kind.__struct_fields__:
        if name not in own:
            value = getattr(row, name)
            own[name] = to_datetime(value) if value is not None and name.endswith("_at") else value
    return kind(**own)


JOB_TIMES = {
    "available_at": "available_at",
    "created_at": "created_at",
    "updated_at": "updated_at",
    "claimed_at": "claimed_at",
    "claim_expires_at": "lease_expires_at",
    "last_heartbeat_at": "last_beat_at",
    "started_at": "started_at",
    "finished_at": "finished_at",
    "cancel_requested_at": "cancel_requested_at",
    "progressed_at": "progressed_at",
    "stalled_at": "stalled_at",
    "revived_at": "revived_at",
    "last_lease_expires_at": "last_lease_expires_at",
    "wanted_at": "wanted_at",
    "dedupe_until": "dedupe_until",
}
"""The times in the JSON of a job, with their names in its record."""


def _read(name: str, read: Callable[[Any], Any], doc: str = "") -> Any:
    def get(self: "Job") -> Any:
        value = getattr(self.record, name)
        return None if value is None else read(value)

    return property(get, doc=doc)


def _plain(name: str) -> Any:
    return property(lambda self: getattr(self.record, name))


class Job(Generic[R_co]):
    """A job as it was when the ledger answered. `record` is the internal record of it.

    For type checkers, `Job[R]` is a job with a result of type R: `Job[int | None]` if the handler returns an int.
    """

    __slots__ = ("_make", "_record", "id", "is_new")

    def __init__(
        self,
        id_: int,
        record: model.JobRecord | None = None,
        make: tuple[Callable[..., model.JobRecord], Any, Any] | None = None,
        *,
        is_new: bool = True,
    ) -> None:
        self.id = id_
        self._record = record
        self._make = make
        self.is_new = is_new
        """False if the job existed already, found by its dedupe key or as an earlier replay."""

    @property
    def record(self) -> model.JobRecord:
        if self._record is None:
            assert self._make is not None
            fold, made, command = self._make
            self._record, self._make = fold(made, command), None
        return self._record

    @property
    def fence(self) -> Fence | None:
        """None. Only the answer to a claim has a fence: see `HeldJob`."""
        return None

    queue: str = _plain("queue")
    kind: str = _plain("kind")
    status: Status = _plain("status")
    phase: Phase | None = _plain("phase")
    priority: int = _plain("priority")
    rev: int = _plain("rev")
    attempt: int = _plain("attempt")
    releases: int = _plain("releases")
    owner: str | None = _plain("owner")
    last_owner: str | None = _plain("last_owner")
    correlation_id: str = _plain("correlation_id")
    trace_id: str | None = _plain("trace_id")
    dedupe_key: str | None = _plain("dedupe_key")
    tier: str | None = _plain("tier")
    replay_of: int | None = _plain("replay_of")
    progress: int | None = _plain("progress")
    stage: str | None = _plain("stage")
    assist_requested: bool = _plain("assist_requested")
    cancel_reason: str | None = _plain("cancel_reason")
    note: str | None = _plain("note")
    policy: Policy | None = _plain("policy")
    undo_owed: int = _plain("undo_owed")
    depends_on: tuple[int, ...] = _plain("depends_on")
    waits_for: tuple[int, ...] = _plain("waits_for")
    group: str | None = _plain("group")
    on_dependency_failure: str = _plain("on_dependency_failure")

    @property
    def partition(self) -> str | None:
        """The partition that it takes turns with others in."""
        return None if self.record.flow is None else self.record.flow.partition or None

    @property
    def limits(self) -> dict[str, int]:
        """The limits that it draws on, with the units of each."""
        return {} if self.record.flow is None else {draw.limit: draw.units for draw in self.record.flow.limits}

    @property
    def requires(self) -> tuple[str, ...]:
        """The labels that its worker must have."""
        return () if self.record.flow is None else self.record.flow.labels

    @property
    def for_worker(self) -> str | None:
        """The only worker that may have it."""
        return None if self.record.flow is None else self.record.flow.for_worker or None

    available_at: datetime = _read("available_at", to_datetime)
    created_at: datetime = _read("created_at", to_datetime)
    updated_at: datetime = _read("updated_at", to_datetime)
    claimed_at: datetime | None = _read("claimed_at", to_datetime)
    claim_expires_at: datetime | None = _read("lease_expires_at", to_datetime)
    last_heartbeat_at: datetime | None = _read("last_beat_at", to_datetime)
    started_at: datetime | None = _read("started_at", to_datetime)
    finished_at: datetime | None = _read("finished_at", to_datetime)
    dedupe_until: datetime | None = _read("dedupe_until", to_datetime)
    cancel_requested_at: datetime | None = _read("cancel_requested_at", to_datetime)

    @property
    def attempts_max(self) -> int | None:
        """The limit in the newest attempt's policy. None before the first claim: a policy is resolved when a lease is issued."""
        return None if self.record.policy is None else self.record.policy.attempts_max

    @property
    def args_json(self) -> bytes:
        """The arguments as JSON."""
        return self.record.args

    @property
    def args(self) -> Any:
        return _decode(self.args_json)

    @property
    def result(self) -> R_co:
        return None if self.record.result is None else _decode(self.record.result)  # type: ignore[return-value]

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint. This distinguishes a checkpoint of None from no checkpoint."""
        return self.record.checkpoint is not None

    checkpoint: Any = _read("checkpoint", _decode, "The last checkpoint of a holder, for the next one.")
    last_error: Any = _read("last_error", _decode)

    @property
    def error(self) -> Any:
        """The error of a failed job. None for any other job."""
        return self.last_error if self.record.status is Status.FAILED else None

    failure_stage: FailureStage | None = _read(
        "failure_stage", FailureStage, "The stage at which the newest attempt failed, if it failed."
    )
    reason_code: ReasonCode | None = _read(
        "reason_code",
        ReasonCode,
        "Why the newest attempt failed, if that is known. For a dead letter and an exhausted job, why the job ended.",
    )
    stall_reason: StallReason | None = _read("stall_reason", StallReason)

    @property
    def dead_letter(self) -> dict[str, Any] | None:
        """The dead-letter fields. None for any other job."""
        job = self.record
        if job.status is not Status.DEAD_LETTERED:
            return None
        return {
            "reason_code": ReasonCode(job.reason_code or ""),
            "failure_stage": job.failure_stage,
            "last_error": self.last_error,
            "attempts": job.attempt,
            "last_owner": job.last_owner,
            "last_lease_expires_at": None if job.last_lease_expires_at is None else to_datetime(job.last_lease_expires_at),
            "correlation_id": job.correlation_id,
        }

    def __repr__(self) -> str:
        job = self.record
        return f"<Job {job.id} {job.kind!r} {job.status.value} rev={job.rev} attempt={job.attempt}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (self.record, self.fence) == (other.record, other.fence)

    def __hash__(self) -> int:
        return hash((self.id, self.record.rev))


class HeldJob(Job[Any]):
    """A claimed job with the fence of its attempt, as the verbs that claim return it. In a handler it is `job.job`."""

    __slots__ = ("_fence",)

    def __init__(self, record: model.JobRecord, fence: Fence) -> None:
        super().__init__(record.id, record)
        self._fence = fence

    @property
    def fence(self) -> Fence:
        """The right to write to this attempt. Every verb of a holder takes it."""
        return self._fence


class ClaimedJob(HeldJob):
    """A job of a claim. Its record and its fence are made from the claim's row when they are first read."""

    __slots__ = ("_made_fence", "claim", "row")

    is_new = True

    def __init__(self, claim: ClaimedJobs, row: tuple[Any, ...]) -> None:
        self.id = row_id(row)
        self.claim = claim
        self.row = row
        self._record = None
        self._made_fence: Fence | None = None

    @property
    def record(self) -> model.JobRecord:
        if self._record is None:
            self._record = self.claim.make_record(self.row)
        return self._record

    @property
    def fence(self) -> Fence:
        if self._made_fence is None:
            command = self.claim.command
            self._made_fence = Fence(
                self.id, row_attempt(self.row), self.claim.token(self.row), command.actor.name, command.actor.incarnation
            )
        return self._made_fence

    @property
    def kind(self) -> str:  # type: ignore[override]
        return row_kind(self.row)  # type: ignore[no-any-return]

    @property
    def status(self) -> Status:  # type: ignore[override]
        return Status.RUNNING if self.claim.command.start else Status.CLAIMED

    @property
    def policy(self) -> Policy:  # type: ignore[override]
        return self.claim.policy(self.row)

    @property
    def args_json(self) -> bytes:
        return args_of(row_payload(self.row)) if self._record is None else self._record.args


class JobPage(list[Job[Any]]):
    """A list of jobs. Pass `next_cursor` as `cursor` to get the next page. It is None on the last page.

    If the order is that of ids, `next_after` serves the same purpose as `after`.
    """

    def __init__(
        self,
        jobs: Iterable[Job[Any]],
        next_after: int | None,
        next_cursor: str | None = None,
        searched: int | None = None,
        *,
        stopped: bool = False,
    ) -> None:
        super().__init__(jobs)
        self.next_after = next_after
        self.next_cursor = next_cursor
        self.searched = searched
        """How many jobs a search by time or text has examined, or how many were sorted. None if neither was necessary."""
        self.stopped = stopped
        """Whether there are jobs that were not examined, because one call examines only so many."""


class Change(msgspec.Struct, frozen=True):
    """The answer to a start or a completion: the job's new revision and status."""

    job_id: int
    rev: int
    status: Status
    at: datetime


class Beat(msgspec.Struct, frozen=True):
    """The answer to a heartbeat. `lease_expires_at` is None if the job has stalled. `at` is the ledger's time."""

    job_id: int
    rev: int
    status: Status
    lease_expires_at: datetime | None
    cancel_requested: bool
    at: datetime


class Event(msgspec.Struct, frozen=True):
    """One accepted change of a job."""

    id: str
    pos: int
    job_id: int
    rev: int
    type: EventType
    at: datetime
    received_at: datetime
    actor: str
    attempt: int
    from_status: Status | None
    to_status: Status
    reason: str | None
    correlation_id: str
    trace_id: str | None
    cause: str | None
    request_id: str | None
    payload: dict[str, Any]
    version: int
    key_id: str | None = None
    """The id of the key that signed it, if it is signed."""
    signature: str | None = None
    """The signature over `statement`, in base64."""
    statement: str | None = None
    """The exact text that was signed."""


class WorkerRecord(msgspec.Struct, frozen=True):
    """A worker that has signed in, with its latest description of itself."""

    name: str
    incarnation: str
    started_at: datetime
    seen_at: datetime
    details: dict[str, Any]
    holding: int = 0
    """The number of jobs that it holds."""


def public_worker(found: WorkerRow) -> WorkerRecord:
    times = to_datetime(found.started_at), to_datetime(found.seen_at)
    return WorkerRecord(found.name, found.incarnation, *times, _decode(found.body), found.holding)


def public_policy(policy: Policy) -> dict[str, Any]:
    """Return the policy snapshot of a lease, as events and messages show it."""
    return msgspec.structs.asdict(policy) | {"stall_after_ms": policy.stall_after_ms}


def public_event(event: model.EventRecord) -> Event:
    payload = {} if event.payload is None else _decode(event.payload)
    if event.policy is not None:
        payload["policy"] = public_policy(event.policy)
    return Event(
        id=event.id,
        pos=event.pos,
        job_id=event.job_id,
        rev=event.rev,
        type=event.type,
        at=to_datetime(event.received_at if event.at is None else event.at),
        received_at=to_datetime(event.received_at),
        actor=str(event.actor),
        attempt=event.attempt,
        from_status=event.from_status,
        to_status=event.to_status,
        reason=event.reason,
        correlation_id=event.correlation_id,
        trace_id=event.trace_id,
        cause=event.cause,
        request_id=event.request_id,
        payload=payload,
        version=event.version,
        key_id=event.key_id,
        signature=None if event.signature is None else b64encode(event.signature).decode(),
        statement=None if event.statement is None else event.statement.decode(),
    )
