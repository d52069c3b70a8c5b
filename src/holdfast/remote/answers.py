"""The shapes of a server's answers, and the records that they become. Unknown fields are ignored."""

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.model import ON_FAILURE_DEFAULT, Draw, Flow, JobRecord, Micros, Phase, Policy, Status, required_labels
from holdfast.errors import HoldfastError
from holdfast.ledger.public import JOB_TIMES, Beat, Change, Event, to_micros
from holdfast.remote.refusals import ProblemFields, error_of
from holdfast.store.session import AppliedCommand


class FenceToken(msgspec.Struct, frozen=True):
    token: str


class RemoteJob(msgspec.Struct, frozen=True):
    """A job as the server sends it. JSON values keep their bytes."""

    id: int
    queue: str
    kind: str
    status: Status
    phase: Phase | None
    priority: int
    rev: int
    attempt: int
    releases: int
    available_at: datetime
    created_at: datetime
    updated_at: datetime
    args: msgspec.Raw
    correlation_id: str
    claimed_at: datetime | None = None
    claim_expires_at: datetime | None = None
    last_heartbeat_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    owner: str | None = None
    last_owner: str | None = None
    incarnation: str | None = None
    stage: str | None = None
    progress: int | None = None
    progressed_at: datetime | None = None
    assist_requested: bool = False
    result: msgspec.Raw = msgspec.Raw(b"null")
    checkpoint: msgspec.Raw = msgspec.Raw(b"null")
    has_checkpoint: bool = False
    last_error: msgspec.Raw = msgspec.Raw(b"null")
    failure_stage: str | None = None
    reason_code: str | None = None
    stall_reason: str | None = None
    stalled_at: datetime | None = None
    revived_at: datetime | None = None
    last_lease_expires_at: datetime | None = None
    cancel_reason: str | None = None
    cancel_requested_at: datetime | None = None
    trace_id: str | None = None
    dedupe_key: str | None = None
    dedupe_forever: bool = False
    dedupe_until: datetime | None = None
    tier: str | None = None
    replay_of: int | None = None
    note: str | None = None
    undo_owed: int = 0
    depends_on: tuple[int, ...] = ()
    waits_for: tuple[int, ...] = ()
    wanted_at: datetime | None = None
    on_dependency_failure: str = ON_FAILURE_DEFAULT
    group: str | None = None
    policy: Policy | None = None
    override: msgspec.Raw = msgspec.Raw(b"null")
    counter: int | None = None
    fence: FenceToken | None = None
    partition: str | None = None
    limits: dict[str, int] = {}
    requires: tuple[str, ...] = ()
    for_worker: str | None = None


_BODIES = ("args", "result", "checkpoint", "last_error", "override")
_SAME = tuple(
    name for name in RemoteJob.__struct_fields__ if name in JobRecord.__struct_fields__ and name not in (*JOB_TIMES, *_BODIES)
)


def record_of(job: RemoteJob) -> JobRecord:
    """Return the record of a job. Its token is that of the fence, if the answer has one."""
    fields: dict[str, Any] = {name: getattr(job, name) for name in _SAME}
    for name, column in JOB_TIMES.items():
        fields[column] = micros(getattr(job, name))
    return JobRecord(
        args=bytes(job.args),
        result=bytes(job.result) if job.status is Status.SUCCEEDED else None,
        checkpoint=bytes(job.checkpoint) if job.has_checkpoint else None,
        last_error=_body(job.last_error),
        override=_body(job.override),
        token=None if job.fence is None else job.fence.token,
        flow=_flow(job),
        **fields,
    )


def _flow(job: RemoteJob) -> Flow | None:
    """Return the options of flow control. The answer does not have the keys of limits."""
    if not (job.partition or job.limits or job.requires or job.for_worker):
        return None
    draws = tuple(Draw(name, units) for name, units in job.limits.items())
    return Flow(job.partition or "", draws, required_labels(job.for_worker or "", job.requires))


def _body(found: msgspec.Raw) -> bytes | None:
    body = bytes(found)
    return None if body == b"null" else body


def micros(moment: datetime | None) -> Micros | None:
    return None if moment is None else to_micros(moment)


def applied(found: Change | Beat) -> AppliedCommand:
    """Return a change or a heartbeat as the ledger's own pipeline answers it."""
    at = to_micros(found.at)
    if isinstance(found, Change):
        return AppliedCommand(found.job_id, found.rev, found.status, at)
    return AppliedCommand(found.job_id, found.rev, found.status, at, micros(found.lease_expires_at), found.cancel_requested)


# Answers


_known: dict[tuple[str, Any], type[Any]] = {}


def having(name: str, kind: Any) -> type[Any]:
    """Return the type of an answer with this field. Other fields are ignored."""
    found = _known.get((name, kind))
    if found is None:
        found = _known[name, kind] = msgspec.defstruct("Answer", [(name, kind)], frozen=True)
    return found


class FoundAnswer(msgspec.Struct, frozen=True):
    job: RemoteJob
    is_new: bool = True


class PageAnswer(msgspec.Struct, frozen=True):
    jobs: list[RemoteJob]
    next_after: int | None = None
    next_cursor: str | None = None
    searched: int | None = None
    stopped: bool = False


class StableEvents(msgspec.Struct, frozen=True):
    events: list[Event]
    next_after: int | None = None
    """Where to go on after a full page. Events that the caller may not see are left out of it."""


class CreatedAnswer(msgspec.Struct, frozen=True):
    job_ids: list[int] = []
    jobs: list[RemoteJob] = []
    existing: list[int] = []
    """The places of jobs that a dedupe key found."""
    at: datetime | None = None
    """When the new jobs were created."""


class BatchItem(msgspec.Struct, frozen=True):
    """One of many answers: a value, a refusal, or neither for a job that is settled."""

    change: Change | None = None
    beat: Beat | None = None
    job: RemoteJob | None = None
    is_new: bool = True
    problem: ProblemFields | None = None

    @property
    def done(self) -> Change | Beat:
        found = self.change or self.beat
        assert found is not None, "the server answered neither a value nor a refusal"
        return found

    @property
    def error(self) -> HoldfastError | None:
        return None if self.problem is None else error_of(self.problem)


class WakeUp(msgspec.Struct, frozen=True):
    woken: bool
    change: str = ""


class LedgerFacts(msgspec.Struct, frozen=True):
    """What the server says of its ledger."""

    ledger_id: str
    schema: int


class TokenFacts(msgspec.Struct, frozen=True):
    """What the server says of the token."""

    name: str
    role: str
    act_as: tuple[str, ...] = ()
