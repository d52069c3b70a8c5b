"""A task, as agents are shown one: a job's row, with its contents where they are asked for."""

from datetime import datetime
from typing import Any

import msgspec

from holdfast.core.limits import AGENT_VALUE_BYTES_MAX
from holdfast.core.model import JobRecord, Micros, Phase
from holdfast.ledger.public import to_datetime

UNSET = msgspec.UNSET


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """Where a task stands. What it is about (`args`, `checkpoint`, `last_error`, `result`) is in the answers to get, start and
    resume; in those to the latter two, what is longer than 16 KiB is left out, and `omitted` says how many bytes it has.
    `replayed` is there, and true, where the request was answered before: this is that answer, and nothing was done now."""

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
    """What a `gc` did: the tasks whose claims had expired, and whether there may be more of them. `replayed` as in a Task."""

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


def contents_of(job: JobRecord, bytes_max: int | None = AGENT_VALUE_BYTES_MAX) -> dict[str, Any]:
    """What the task is about, and how long what is left out would be."""
    found = {"args": job.args, "checkpoint": job.checkpoint, "last_error": job.last_error, "result": job.result}
    there = {name: body for name, body in found.items() if body is not None}
    large = {name: len(body) for name, body in there.items() if bytes_max is not None and len(body) > bytes_max}
    told: dict[str, Any] = {name: msgspec.Raw(body) for name, body in there.items() if name not in large}
    return told | ({"omitted": large} if large else {})
