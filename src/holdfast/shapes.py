"""The shapes of answers about jobs, events, queues and dead letters, on the command line and over HTTP."""

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.model import EventType, FailureStage, Phase, Policy, ReasonCode, StallReason, Status
from holdfast.core.vocabulary import Dialect
from holdfast.ledger import Event
from holdfast.ledger.public import JOB_TIMES, ClaimedJob, to_datetime

if TYPE_CHECKING:
    from holdfast.ledger import HeldJob, Job


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An object with these fields and no others."""


_ANSWERS: dict[str, type[Any]] = {}
"""The types that `answer_shape` has made, by name."""


def answer_shape(name: str, base: type[msgspec.Struct] = msgspec.Struct, /, **fields: Any) -> type[Any]:
    """Return the type of an object with these fields. Its name is that of its schema."""
    assert name not in _ANSWERS, f"there are two shapes named {name}"
    _ANSWERS[name] = msgspec.defstruct(name, list(fields.items()), bases=(base,), frozen=True)
    return _ANSWERS[name]


class DeadLetterView(msgspec.Struct, frozen=True):
    """The dead-letter fields of a job."""

    reason_code: ReasonCode
    failure_stage: FailureStage | None
    last_error: Any
    attempts: int
    last_owner: str | None
    last_lease_expires_at: datetime | None
    correlation_id: str


class JobView(msgspec.Struct, frozen=True, gc=False):
    """All public fields of a job. The token of its fence is not public."""

    id: int
    queue: str
    kind: str
    status: Status
    phase: Phase | None
    priority: int
    rev: int
    attempt: int
    attempts_max: int | None
    """From the newest attempt's policy; null before the first claim."""
    releases: int
    available_at: datetime
    created_at: datetime
    updated_at: datetime
    claimed_at: datetime | None
    claim_expires_at: datetime | None
    last_heartbeat_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    owner: str | None
    last_owner: str | None
    stage: str | None
    progress: int | None
    assist_requested: bool
    args: Any
    result: Any
    checkpoint: Any
    error: Any
    """The error of a failed job."""
    last_error: Any
    failure_stage: FailureStage | None
    """The stage in which the newest attempt failed, if it failed."""
    reason_code: ReasonCode | None
    """Why the job failed, if known. For a dead letter or an exhausted job, why it ended."""
    stall_reason: StallReason | None
    cancel_reason: str | None
    cancel_requested_at: datetime | None
    dead_letter: DeadLetterView | None
    correlation_id: str
    trace_id: str | None
    dedupe_key: str | None
    tier: str | None
    replay_of: int | None
    note: str | None
    undo_owed: int
    depends_on: tuple[int, ...]
    waits_for: tuple[int, ...]
    """The dependencies that have not succeeded yet."""
    on_dependency_failure: str
    group: str | None
    """The group that it joined."""
    policy: Policy | None
    """The policy of the newest attempt; null before the first claim."""
    incarnation: str | None
    """The incarnation of the worker that holds it, or held it last."""
    has_checkpoint: bool
    """Whether there is a checkpoint, which may be null."""
    progressed_at: datetime | None
    stalled_at: datetime | None
    revived_at: datetime | None
    """When the newest heartbeat since the stall arrived."""
    last_lease_expires_at: datetime | None
    dedupe_forever: bool
    dedupe_until: datetime | None
    """Until when it keeps its dedupe key also after its end."""
    wanted_at: datetime | None
    """When it would be available without its dependencies."""
    override: Any
    """The policy fields that were given when it was enqueued."""
    counter: int | None
    """The signer's counter in the newest signed event of this attempt."""
    partition: str | None
    limits: dict[str, int]
    """The limits that it draws on, with the units of each."""
    requires: tuple[str, ...]
    """The labels that its worker must have."""
    for_worker: str | None
    """The only worker that may have it."""


_DERIVED = {"attempts_max": "policy", "error": "last_error", "dead_letter": "note", "has_checkpoint": "checkpoint"}
_OF_FLOW = ("partition", "limits", "requires", "for_worker")
"""Fields of a view that are made from others, with a field of the record that stands in their place until then."""
_FIELDS = JobView.__struct_fields__
assert _FIELDS[-len(_OF_FLOW) :] == _OF_FLOW
_NO_FLOW: tuple[Any, ...] = (None, {}, (), None)
_values = attrgetter(*({**JOB_TIMES, **_DERIVED}.get(name, name) for name in _FIELDS[: -len(_OF_FLOW)]))
_TIME_PLACES = tuple(_FIELDS.index(name) for name in JOB_TIMES)
_CONTENT_PLACES = tuple(map(_FIELDS.index, ("args", "result", "checkpoint", "last_error", "override")))
_LAST_ERROR = _FIELDS.index("last_error")
_ATTEMPTS_MAX, _ERROR, _DEAD_LETTER, _HAS_CHECKPOINT = map(_FIELDS.index, _DERIVED)


def job_view(job: "Job", *, raw: bool = False) -> JobView:
    """Return the public fields of a job. With `raw`, JSON values keep their bytes."""
    return JobView(*_view_values(job, raw=raw))


def _view_values(job: "Job", *, raw: bool) -> list[Any]:
    """Return the fields of a view in their order. They are read all at once: a claim may have a thousand jobs."""
    record = job.record
    values = [*_values(record), *(_NO_FLOW if record.flow is None else (getattr(job, name) for name in _OF_FLOW))]
    for place in _TIME_PLACES:
        if values[place] is not None:
            values[place] = to_datetime(values[place])
    read = msgspec.Raw if raw else msgspec.json.decode
    for place in _CONTENT_PLACES:
        if values[place] is not None:
            values[place] = read(values[place])
    last_error = values[_LAST_ERROR]
    values[_HAS_CHECKPOINT] = record.checkpoint is not None
    values[_ATTEMPTS_MAX] = None if record.policy is None else record.policy.attempts_max
    values[_ERROR] = last_error if record.status is Status.FAILED else None
    letter = job.dead_letter if record.status is Status.DEAD_LETTERED else None
    values[_DEAD_LETTER] = None if letter is None else DeadLetterView(**(letter | {"last_error": last_error}))
    return values


class FenceView(Shape, frozen=True, gc=False):
    """The right to write to an attempt. Its holder sends it back with each request."""

    job_id: int
    attempt: int
    token: str
    worker: str
    incarnation: str


class ClaimedJobView(JobView, frozen=True, kw_only=True, gc=False):
    """A job with its fence, as the answer to a claim has it."""

    fence: FenceView


def claimed_job_view(job: "HeldJob") -> ClaimedJobView:
    return ClaimedJobView(*_view_values(job, raw=True), fence=_fence_view(job))


def _fence_view(job: "HeldJob") -> FenceView:
    fence = job.fence
    return FenceView(fence.job_id, fence.attempt, fence.token, fence.worker, fence.incarnation)


class WorkView(Shape, frozen=True, gc=False):
    """What a worker needs of a job that it has claimed."""

    id: int
    queue: str
    kind: str
    attempt: int
    args: Any
    checkpoint: Any
    has_checkpoint: bool
    """Whether there is a checkpoint, which may be null."""
    correlation_id: str
    trace_id: str | None
    claim_expires_at: datetime | None
    policy: Policy | None
    fence: FenceView


def work_views(jobs: "Sequence[HeldJob]") -> list[WorkView]:
    """Return what a worker needs of the jobs of a claim. Jobs of the same policy share its encoded form."""
    policies = WorkPolicies()
    return [_work_view(job, policies) for job in jobs]


class WorkPolicies(dict[int, tuple[Policy, msgspec.Raw]]):
    """The encoded form of policies, by the identity of their objects."""

    def encoded(self, policy: Policy | None) -> Any:
        if policy is None:
            return None
        found = self.get(id(policy))
        if found is None:
            found = self[id(policy)] = (policy, msgspec.Raw(msgspec.json.encode(policy)))
        return found[1]


def _work_view(job: "HeldJob", policies: WorkPolicies) -> WorkView:
    work = job.claim.work(job.row) if isinstance(job, ClaimedJob) else job.record
    checkpoint, expires_at = work.checkpoint, work.lease_expires_at
    return WorkView(
        work.id,
        work.queue,
        work.kind,
        work.attempt,
        msgspec.Raw(work.args),
        None if checkpoint is None else msgspec.Raw(checkpoint),
        checkpoint is not None,
        work.correlation_id,
        work.trace_id,
        None if expires_at is None else to_datetime(expires_at),
        policies.encoded(work.policy),
        _fence_view(job),
    )


class JobAnswer(Shape, frozen=True):
    job: JobView
    waits_in_vain_for: list[int]
    """The jobs that it waits for which failed, were cancelled or were dead-lettered, among the first 100."""


class EnqueueAnswer(Shape, frozen=True):
    job: JobView
    is_new: bool
    """False if a job with the same dedupe key existed already."""


class JobListAnswer(Shape, frozen=True):
    jobs: list[JobView]
    next_after: int | None
    """The `--after` of the next page; null if there is none."""
    counts: dict[Status, int] | None
    """The number of jobs of each status, in all queues or in that of `--queue`. Other filters do not apply. Null if the newest
    id is above 100,000 and `--counts` was not given, because counting reads every job."""


class ChangedJob(Shape, frozen=True):
    job_id: int
    status: Status
    rev: int


class CancelledJob(ChangedJob, frozen=True):
    is_over: bool
    """False if its holder was asked to stop."""
    changed: bool
    """False if it was cancelled, or its holder was asked to stop, before."""


class CancelAnswer(Shape, frozen=True):
    cancelled: list[CancelledJob]


class CancelAllAnswer(CancelAnswer, frozen=True):
    """With `--all`."""

    count: int
    """The number of jobs that were cancelled or asked to stop; with `--dry-run`, that would be."""
    skipped: int
    """The number of jobs that were claimed or changed after they were listed."""
    dry_run: bool


class PlacedJob(Shape, frozen=True):
    job_id: int
    queue: str
    priority: int
    available_at: datetime
    rev: int


class AssistAnswer(Shape, frozen=True):
    job_id: int
    status: Status
    phase: Phase | None
    rev: int


class ReplayedJob(Shape, frozen=True):
    job_id: int
    replayed_as: int
    is_new: bool


class SkippedReplay(Shape, frozen=True):
    job_id: int
    replayed_as: int
    """The newest finished replay that counts."""
    status: Status
    """The status of that replay."""


class ReplayAnswer(Shape, frozen=True):
    replayed: list[ReplayedJob]
    skipped: int
    """The number of jobs that were replayed before and were not replayed again."""
    skipped_jobs: list[SkippedReplay]
    """The skipped jobs that were given by id; empty with `--all`."""


class DeadLetterReplayAnswer(ReplayAnswer, frozen=True):
    discarded: list[int]
    """The dead letters that `--discard` discarded."""


EventPageAnswer = answer_shape("EventPageAnswer", Shape, events=list[Event], next_after=int | None)
EventAnswer = answer_shape("EventAnswer", Shape, event=Event)


class DialectEventPageAnswer(Shape, frozen=True):
    dialect: Dialect
    events: list[dict[str, Any]]
    """Each with the names and fields of the dialect."""
    next_after: int | None


class QueueEntry(Shape, frozen=True):
    name: str
    paused_at: datetime | None


class QueueCountsEntry(QueueEntry, frozen=True):
    paused_by: str | None
    pause_reason: str | None
    ready_since: datetime | None
    """When the oldest claimable job became available, even if the queue is paused; null if there is none."""
    counts: dict[str, int]
    """The number of jobs of each status."""
    weights: dict[str, int]
    """Turns of each partition in one round."""


class ReplayEntry(Shape, frozen=True):
    job_id: int
    status: Status


class DeadLetterEntry(DeadLetterView, frozen=True, kw_only=True):
    job_id: int
    kind: str
    queue: str
    rev: int
    dead_lettered_at: datetime | None
    note: str | None
    replayed_as: ReplayEntry | None
    """Its newest replay."""


class HistoryEntry(Shape, frozen=True):
    rev: int
    type: EventType
    at: datetime
    actor: str
    attempt: int
    reason: str | None


class DeadLetterAnswer(DeadLetterEntry, frozen=True, kw_only=True):
    args: Any
    history: list[HistoryEntry]
    replays: list[ReplayEntry]


def dead_letter_fields(job: "Job", replay: "Job | None") -> dict[str, Any]:
    """Return the job's own fields, every dead-letter field, and the newest replay."""
    assert job.dead_letter is not None
    own = {"job_id": job.id, "kind": job.kind, "queue": job.queue, "rev": job.rev, "dead_lettered_at": job.finished_at}
    return {**own, **job.dead_letter, "note": job.note, "replayed_as": None if replay is None else _replay_fields(replay)}


def _replay_fields(replay: "Job") -> dict[str, Any]:
    return {"job_id": replay.id, "status": replay.status}


def dead_letter_details(job: "Job", events: "Sequence[Event]", replays: "Sequence[Job]") -> dict[str, Any]:
    history = [
        {"rev": e.rev, "type": e.type, "at": e.received_at, "actor": e.actor, "attempt": e.attempt, "reason": e.reason}
        for e in events
    ]
    newest = replays[-1] if replays else None
    return {
        **dead_letter_fields(job, newest),
        "args": job.args,
        "history": history,
        "replays": [_replay_fields(one) for one in replays],
    }
