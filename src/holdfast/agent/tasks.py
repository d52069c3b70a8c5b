"""A task as agents see it: a job's row, with its contents if they are requested."""

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.limits import AGENT_VALUE_BYTES_MAX
from holdfast.core.model import JobRecord, Micros, Phase, Status
from holdfast.ledger.public import Beat, to_datetime

UNSET = msgspec.UNSET


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a task. Its contents (`args`, `checkpoint`, `last_error`, `result`) are in the answers to get, start and
    resume. The answers to start and resume leave out contents longer than 16 KiB; `omitted` has their lengths in bytes.
    `replayed` is set, and true, if the request was answered before: this is the earlier answer, and nothing was changed now."""

    id: int
    kind: str
    queue: str
    status: str
    phase: str | None
    priority: int
    attempt: int
    rev: int
    claimed_by: str | None
    session: str | None
    claimed_at: datetime | None
    claim_expires_at: datetime | None
    last_heartbeat_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    available_at: datetime
    created_at: datetime
    stage: str | None
    progress: int | None
    cancel_requested: bool
    last_owner: str | None
    stall_reason: str | None
    args: Any = UNSET
    checkpoint: Any = UNSET
    last_error: Any = UNSET
    result: Any = UNSET
    omitted: dict[str, int] | msgspec.UnsetType = UNSET
    replayed: bool | msgspec.UnsetType = UNSET


class Collected(msgspec.Struct, frozen=True):
    """The answer to `gc`: the tasks that were released, and whether there may be more. `replayed` is as in a Task."""

    released: list[int]
    more: bool = False
    replayed: bool | msgspec.UnsetType = UNSET


def _to_datetime(at: Micros | None) -> datetime | None:
    return None if at is None else to_datetime(at)


def task_of(job: JobRecord, contents: dict[str, Any] | None = None) -> Task:
    held = job.owner is not None
    return Task(
        id=job.id,
        kind=job.kind,
        queue=job.queue,
        status=job.status.value,
        phase=None if job.phase is None else job.phase.value,
        priority=job.priority,
        attempt=job.attempt,
        rev=job.rev,
        claimed_by=job.owner,
        session=job.incarnation if held else None,
        claimed_at=_to_datetime(job.claimed_at),
        claim_expires_at=_to_datetime(job.lease_expires_at),
        last_heartbeat_at=_to_datetime(job.last_beat_at),
        started_at=_to_datetime(job.started_at),
        finished_at=_to_datetime(job.finished_at),
        available_at=to_datetime(job.available_at),
        created_at=to_datetime(job.created_at),
        stage=job.stage,
        progress=job.progress,
        cancel_requested=job.phase is Phase.ABORTING,
        last_owner=job.last_owner,
        stall_reason=job.stall_reason,
        **(contents or {}),
    )


def beat_of(task: Task) -> Beat:
    """Return the answer to a heartbeat as it is without agents."""
    assert task.last_heartbeat_at is not None
    status, at = Status(task.status), task.last_heartbeat_at
    return Beat(task.id, task.rev, status, task.claim_expires_at, task.cancel_requested, at)


def contents_of(job: JobRecord, bytes_max: int | None = AGENT_VALUE_BYTES_MAX) -> dict[str, Any]:
    """Return the task's contents, and in `omitted` the lengths of those that are longer than `bytes_max`."""
    fields = {"args": job.args, "checkpoint": job.checkpoint, "last_error": job.last_error, "result": job.result}
    present = {name: body for name, body in fields.items() if body is not None}
    large = {name: len(body) for name, body in present.items() if bytes_max is not None and len(body) > bytes_max}
    contents: dict[str, Any] = {name: msgspec.Raw(body) for name, body in present.items() if name not in large}
    return contents | ({"omitted": large} if large else {})
