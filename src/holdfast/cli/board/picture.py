"""A ledger at one moment, as much of it as fits on a screen."""

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.cli.letters import told
from holdfast.core.model import TERMINAL, EventType, Status
from holdfast.ledger import WorkerRecord

if TYPE_CHECKING:
    from holdfast.ledger import Job, Ledger, QueueRecord

ROWS_MAX = 200
"""Of each kind: more than a screen has, few enough to be read every second."""
ERROR_CHARACTERS_MAX = 200


class QueueLine(msgspec.Struct, frozen=True):
    name: str
    paused_at: datetime | None
    counts: dict[str, int]
    """How many jobs of each status."""
    enqueued_per_s: float | None
    """Since the picture before; null in the first one."""
    finished_per_s: float | None
    paused_by: str | None = None
    pause_reason: str | None = None
    ready_since: datetime | None = None
    """Since when the first of those that could be claimed could be; null where there is none."""


class JobLine(msgspec.Struct, frozen=True):
    id: int
    kind: str
    queue: str
    status: Status
    attempt: int
    owner: str | None
    stage: str | None
    progress: int | None
    started_at: datetime | None
    last_heartbeat_at: datetime | None
    finished_at: datetime | None
    reason: str | None
    """Why it stalled, failed or was dead-lettered."""
    error: str | None


class Picture(msgspec.Struct, frozen=True):
    now: datetime
    queues: list[QueueLine]
    workers: list[WorkerRecord]
    running: list[JobLine]
    stalled: list[JobLine]
    failed: list[JobLine]
    """Those that nobody has discarded, the oldest first."""
    dead_letters: list[JobLine]
    """Those that nobody has discarded, the oldest first."""


class Looking:
    """Makes one picture after the other; rates are what has changed between two."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._before: tuple[datetime, dict[str, dict[str, int]]] | None = None

    def look(self) -> Picture:
        ledger = self._ledger
        now, found = ledger.now(), ledger.queues()
        queues = [self._queue(one, now) for one in found]
        self._before = (now, {one.name: one.counts for one in found})
        return Picture(
            now,
            queues,
            ledger.workers(limit=ROWS_MAX),
            [line(job) for job in ledger.list(status=["claimed", "running"], limit=ROWS_MAX)],
            [line(job) for job in ledger.list(status="stalled", limit=ROWS_MAX)],
            [line(job) for job in ledger.list(status="failed", limit=ROWS_MAX) if job.note != EventType.DISCARDED],
            [line(job) for job in ledger.dead_letters(limit=ROWS_MAX)],
        )

    def _queue(self, one: "QueueRecord", now: datetime) -> QueueLine:
        counts = one.counts
        rates: tuple[float | None, float | None] = (None, None)
        if self._before is not None and (passed_s := (now - self._before[0]).total_seconds()) > 0:
            old = self._before[1].get(one.name, {})
            grown = max(0, sum(counts.values()) - sum(old.values()))
            ended = max(0, _finished(counts) - _finished(old))
            rates = (grown / passed_s, ended / passed_s)
        shown = {status.value: counts.get(status.value, 0) for status in Status}
        return QueueLine(one.name, one.paused_at, shown, *rates, one.paused_by, one.pause_reason, one.ready_since)


def _finished(counts: dict[str, int]) -> int:
    return sum(counts.get(status.value, 0) for status in TERMINAL)


def line(job: "Job") -> JobLine:
    reason = job.reason_code if job.status is Status.FAILED else job.stall_reason or (job.dead_letter or {}).get("reason_code")
    return JobLine(
        id=job.id,
        kind=job.kind,
        queue=job.queue,
        status=job.status,
        attempt=job.attempt,
        owner=job.owner or job.last_owner,
        stage=job.stage,
        progress=job.progress,
        started_at=job.started_at,
        last_heartbeat_at=job.last_heartbeat_at,
        finished_at=job.finished_at,
        reason=None if reason is None else reason.value,
        error=None if job.last_error is None else told(job.last_error, ERROR_CHARACTERS_MAX),
    )
