"""Conversion between rows and jobs: columns, their order, and derived correlation ids."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from holdfast.core import payloads
from holdfast.core.commands import ClaimNext
from holdfast.core.model import EventRecord, EventType, JobRecord, Micros, Phase, Policy, Status

T = TypeVar("T")

_JOB_ID = re.compile(r"[1-9][0-9]{0,17}")


def default_correlation(ledger_id: str, job_id: int) -> str:
    """Return the correlation id of a job that was enqueued without one. It is derived, so it takes no storage."""
    return f"{ledger_id}-{job_id}"


def job_of_correlation(ledger_id: str, correlation_id: str) -> int | None:
    """Return the job that this derived correlation id belongs to."""
    prefix, _, number = correlation_id.rpartition("-")
    return int(number) if prefix == ledger_id and _JOB_ID.fullmatch(number) else None


STATUSES: dict[str, Status] = {status.value: status for status in Status}

PHASES: dict[str | None, Phase | None] = {None: None} | {phase.value: phase for phase in Phase}

BATCH_EVENTS_MAX = 2_048
"""The most events that one statement records."""

EVENT_TYPES: dict[str, EventType] = {kind.value: kind for kind in EventType}


class EventRow(NamedTuple):
    """The stored columns of an event, with the correlation and the trace of its job."""

    pos: int
    job_id: int
    rev: int
    type: str
    received_at: Micros
    at: Micros | None
    actor: str
    attempt: int
    from_status: str | None
    to_status: str
    reason: str | None
    request_id: str | None
    cause: str | None
    payload: bytes | None
    policy_id: int | None
    correlation_id: str | None
    trace_id: str | None
    key_id: str | None
    signature: bytes | None
    statement: bytes | None


def build_job(row: Sequence[Any], policy: Callable[[int], Policy], ledger_id: str) -> JobRecord:
    """Build a job from a row whose columns are in the order in which they are unpacked below.

    They are the columns of the job's row with the payloads of its `enqueued` and its `succeeded` event, then the payload of the
    last heartbeat with a checkpoint, and the ids of the jobs it waits for, as one text.
    """
    (id_, queue, kind, status, rev, attempt, priority, available_at, created_at, updated_at, phase, releases, owner,
     incarnation, claimed_at, lease_expires_at, last_beat_at, started_at, finished_at, stage, progress, progressed_at,
     assist_requested, counter, last_owner, last_lease_expires_at, last_error, stall_reason, stalled_at, revived_at,
     cancel_reason, cancel_requested_at, reason_code, failure_stage, undo_owed, note, dedupe_key, dedupe_forever,
     correlation_id, trace_id, token, policy_id, enqueued, outcome, checkpoint, unmet) = row  # fmt: skip
    body = payloads.decode(payloads.EnqueuedPayload, enqueued)
    return JobRecord(
        id_, queue, kind, STATUSES[status], rev, attempt, priority, available_at, created_at, updated_at, bytes(body.args),
        correlation_id or default_correlation(ledger_id, id_), PHASES[phase], releases, owner, incarnation, claimed_at,
        lease_expires_at, last_beat_at, started_at, finished_at, stage, progress, progressed_at, bool(assist_requested),
        counter, last_owner, last_lease_expires_at, last_error, stall_reason, stalled_at, revived_at, cancel_reason,
        cancel_requested_at, reason_code, failure_stage,
        None if outcome is None else bytes(payloads.decode(payloads.SucceededPayload, outcome).result),
        payloads.checkpoint_of(checkpoint), undo_owed,
        note, dedupe_key, bool(dedupe_forever), body.tier, trace_id, body.replay_of,
        payloads.json_bytes(body.policy), None if policy_id is None else policy(policy_id), token, body.depends_on,
        body.on_dependency_failure, body.wanted_at(created_at), body.dedupe_until(created_at),
        () if unmet is None else tuple(sorted(map(int, unmet.split(",")))), body.flow, body.group,
    )  # fmt: skip


class ClaimedRow(NamedTuple):
    """The columns that a claim returns, in this order. Rows stay plain tuples, because a claim may have hundreds of them."""

    id: int
    queue: str
    kind: str
    rev: int
    attempt: int
    priority: int
    available_at: Micros
    created_at: Micros
    claimed_at: Micros
    lease_expires_at: Micros
    releases: int
    last_owner: str | None
    last_lease_expires_at: Micros | None
    last_error: bytes | None
    cancel_reason: str | None
    dedupe_key: str | None
    dedupe_forever: bool
    correlation_id: str | None
    trace_id: str | None
    policy_id: int
    checkpoint_rev: int | None
    undo_owed: int
    payload: bytes


_field = ClaimedRow._fields.index
row_id, row_queue, row_kind, row_attempt, row_policy_id, row_payload, row_checkpoint_rev = (
    itemgetter(_field(name)) for name in ("id", "queue", "kind", "attempt", "policy_id", "payload", "checkpoint_rev")
)
row_id_and_rev = itemgetter(*map(_field, ("id", "rev")))
row_order = itemgetter(*map(_field, ("available_at", "id")))
row_priority = itemgetter(_field("priority"))
row_times = itemgetter(*map(_field, ("kind", "available_at", "created_at", "claimed_at")))


_row_work = itemgetter(
    *map(
        _field,
        (
            "id", "queue", "kind", "attempt", "lease_expires_at", "correlation_id", "trace_id", "checkpoint_rev", "policy_id",
            "payload",
        ),
    )
)  # fmt: skip


class WorkFields(NamedTuple):
    """What a worker needs of a job that it has claimed."""

    id: int
    queue: str
    kind: str
    attempt: int
    args: bytes
    checkpoint: bytes | None
    correlation_id: str
    trace_id: str | None
    lease_expires_at: Micros
    policy: Policy


def sort_claimed(rows: list[tuple[Any, ...]]) -> None:
    """Sort rows of one queue as they were claimed: by priority, the highest first, then by age and id."""
    rows.sort(key=row_order)
    rows.sort(key=row_priority, reverse=True)


class ClaimedJobs(Sequence[JobRecord]):
    """The jobs of one claim. A record is made from its row when it is read: a worker reads few fields of most jobs.

    Times in the rows count from `epoch_us`. `checkpoints` has the checkpoint of every job that has one.
    """

    __slots__ = ("_checkpoints", "_epoch_us", "_ledger_id", "command", "is_signed", "policies", "rows")

    def __init__(
        self,
        rows: Sequence[tuple[Any, ...]],
        command: ClaimNext,
        policies: Mapping[int, Policy],
        ledger_id: str,
        checkpoints: Mapping[int, bytes | None],
        epoch_us: Micros,
    ) -> None:
        self.rows = rows
        self.command = command
        self.policies = policies
        """The policies of these jobs, by id."""
        self.is_signed = any(policy.signed != "none" for policy in policies.values())
        """Whether the holder has to sign events of some of these jobs."""
        self._ledger_id = ledger_id
        self._checkpoints = checkpoints
        self._epoch_us = epoch_us

    def joined(self, other: "ClaimedJobs") -> "ClaimedJobs":
        """Return the jobs of both parts of one claim."""
        checkpoints = {**self._checkpoints, **other._checkpoints}  # noqa: SLF001 - of the same class
        policies = {**self.policies, **other.policies}
        return ClaimedJobs([*self.rows, *other.rows], self.command, policies, self._ledger_id, checkpoints, self._epoch_us)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.make_record(self.rows[index])

    def policy(self, row: tuple[Any, ...]) -> Policy:
        return self.policies[row_policy_id(row)]

    def token(self, row: tuple[Any, ...]) -> str:
        """Return the token of the job's fence."""
        return self.command.token + self.policy(row).token_tail

    def waits(self) -> dict[str, list[Micros]]:
        """Return how long each job waited for this claim, by kind."""
        waits: defaultdict[str, list[Micros]] = defaultdict(list)
        for kind, available_at, created_at, claimed_at in map(row_times, self.rows):
            waits[kind].append(claimed_at - (available_at if available_at > created_at else created_at))  # noqa: FURB136 - faster
        return waits

    def work(self, row: tuple[Any, ...]) -> WorkFields:
        """Return what a worker needs of one of the rows. This takes a fifth of the time of a record."""
        id_, queue, kind, attempt, lease, correlation_id, trace_id, checkpoint_rev, policy_id, enqueued = _row_work(row)
        return WorkFields(
            id_, queue, kind, attempt, payloads.args_of(enqueued), None if checkpoint_rev is None else self._checkpoints[id_],
            correlation_id or default_correlation(self._ledger_id, id_), trace_id, lease + self._epoch_us,
            self.policies[policy_id],
        )  # fmt: skip

    def make_record(self, row: tuple[Any, ...]) -> JobRecord:
        """Make the record of one of the rows. Arguments are positional: keywords take ten times as long."""
        (id_, queue, kind, rev, attempt, priority, available_at, created_at, at, lease_expires_at, releases, last_owner,
         last_lease, last_error, cancel_reason, dedupe_key, dedupe_forever, correlation_id, trace_id, policy_id,
         checkpoint_rev, undo_owed, enqueued) = row[:CLAIMED_COLUMNS]  # fmt: skip
        command, epoch_us = self.command, self._epoch_us
        start, actor = command.start, command.actor
        status, phase = (Status.RUNNING, Phase.EXECUTING) if start else (Status.CLAIMED, None)
        body = payloads.decode(payloads.EnqueuedPayload, enqueued)
        at += epoch_us
        return JobRecord(
            id_, queue, kind, status, rev, attempt, priority, available_at + epoch_us, created_at + epoch_us, at,
            bytes(body.args), correlation_id or default_correlation(self._ledger_id, id_), phase, releases, actor.name,
            actor.incarnation, at, lease_expires_at + epoch_us, at, at if start else None, None, None, None, at, False, None,
            last_owner, None if last_lease is None else last_lease + epoch_us, last_error, None, None, None,
            cancel_reason, None, None, None, None, None if checkpoint_rev is None else self._checkpoints[id_], undo_owed, None,
            dedupe_key, bool(dedupe_forever), body.tier, trace_id, body.replay_of, payloads.json_bytes(body.policy),
            self.policies[policy_id], None, body.depends_on, body.on_dependency_failure,
            body.wanted_at(created_at + epoch_us), body.dedupe_until(created_at + epoch_us), (), body.flow, body.group,
        )  # fmt: skip


CLAIMED_COLUMNS = len(ClaimedRow._fields)


SAVED_COLUMNS = (
    "queue", "priority", "status", "rev", "attempt", "available_at", "updated_at", "phase", "releases", "owner", "incarnation",
    "claimed_at",
    "lease_expires_at", "last_beat_at", "started_at", "finished_at", "stage", "progress", "progressed_at",
    "assist_requested", "counter", "last_owner", "last_lease_expires_at", "last_error", "stall_reason", "stalled_at",
    "revived_at", "cancel_reason", "cancel_requested_at", "reason_code", "failure_stage", "undo_owed", "note",
    "token",
)  # fmt: skip
"""The columns that a save may change. The store derives `policy_id`, `result`, `checkpoint_rev`, and those of indexes, itself."""


def saved_values(job: JobRecord) -> dict[str, Any]:
    """Return the row's new values by column, as texts and numbers."""
    values = {name: getattr(job, name) for name in SAVED_COLUMNS}
    values["status"] = job.status.value
    values["phase"] = None if job.phase is None else job.phase.value
    return values


def checkpoint_rev(events: Sequence[EventRecord]) -> int | None:
    """Return the revision of the newest checkpoint among `events`."""
    beats = [event for event in events if event.type is EventType.HEARTBEAT]
    return max((event.rev for event in beats if payloads.checkpoint_of(event.payload) is not None), default=None)


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
