"""The data behind `holdfast top`: snapshots of a ledger, read in a thread of their own."""

import threading
import time
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from holdfast.cli.job_views import error_text
from holdfast.core.model import TERMINAL, EventType, Status
from holdfast.errors import HoldfastError
from holdfast.ledger import WorkerRecord

if TYPE_CHECKING:
    from holdfast.ledger import Job, Ledger, QueueRecord


ROWS_MAX = 200
"""Of each kind: more than a screen has, few enough to be read every second."""
ERROR_CHARACTERS_MAX = 200


class QueueRow(msgspec.Struct, frozen=True):
    name: str
    paused_at: datetime | None
    counts: dict[str, int]
    """How many jobs of each status."""
    enqueued_per_s: float | None
    """Since the snapshot before; null in the first one."""
    finished_per_s: float | None
    paused_by: str | None = None
    pause_reason: str | None = None
    ready_since: datetime | None = None
    """Since when the first of those that could be claimed could be; null where there is none."""


class JobRow(msgspec.Struct, frozen=True):
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


class LedgerSnapshot(msgspec.Struct, frozen=True):
    now: datetime
    queues: list[QueueRow]
    workers: list[WorkerRecord]
    running: list[JobRow]
    stalled: list[JobRow]
    failed: list[JobRow]
    """Those that nobody has discarded, the oldest first."""
    dead_letters: list[JobRow]
    """Those that nobody has discarded, the oldest first."""


class SnapshotReader:
    """Makes one snapshot after the other; rates are what has changed between two."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._before: tuple[datetime, dict[str, dict[str, int]]] | None = None

    def look(self) -> LedgerSnapshot:
        ledger = self._ledger
        now, found = ledger.now(), ledger.queues()
        queues = [self._queue(one, now) for one in found]
        self._before = (now, {one.name: one.counts for one in found})
        return LedgerSnapshot(
            now,
            queues,
            ledger.workers(limit=ROWS_MAX),
            [job_row(job) for job in ledger.list(status=["claimed", "running"], limit=ROWS_MAX)],
            [job_row(job) for job in ledger.list(status="stalled", limit=ROWS_MAX)],
            [job_row(job) for job in ledger.list(status="failed", limit=ROWS_MAX) if job.note != EventType.DISCARDED],
            [job_row(job) for job in ledger.dead_letters(limit=ROWS_MAX)],
        )

    def _queue(self, one: "QueueRecord", now: datetime) -> QueueRow:
        counts = one.counts
        rates: tuple[float | None, float | None] = (None, None)
        if self._before is not None and (passed_s := (now - self._before[0]).total_seconds()) > 0:
            old = self._before[1].get(one.name, {})
            grown = max(0, sum(counts.values()) - sum(old.values()))
            ended = max(0, _finished(counts) - _finished(old))
            rates = (grown / passed_s, ended / passed_s)
        shown = {status.value: counts.get(status.value, 0) for status in Status}
        return QueueRow(one.name, one.paused_at, shown, *rates, one.paused_by, one.pause_reason, one.ready_since)


def _finished(counts: dict[str, int]) -> int:
    return sum(counts.get(status.value, 0) for status in TERMINAL)


def job_row(job: "Job") -> JobRow:
    reason = job.reason_code if job.status is Status.FAILED else job.stall_reason or (job.dead_letter or {}).get("reason_code")
    return JobRow(
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
        error=None if job.last_error is None else error_text(job.last_error, ERROR_CHARACTERS_MAX),
    )


READING_SHARE_MAX = 0.2
"""Of its time: where looking takes long, it is done less often."""


class SnapshotPoller:
    """`snapshot` is the newest one; `trouble` says why there is no newer one. The thread that reads them writes neither."""

    def __init__(self, ledger: "Ledger", every_s: float) -> None:
        self._reader = SnapshotReader(ledger)
        self._every_s = every_s
        self._again = threading.Event()
        self._over = False
        self.snapshot: LedgerSnapshot | None = None
        self.trouble = ""
        self.looks = 0
        """How often it has looked: whoever draws can tell whether there is something new."""
        self._thread = threading.Thread(target=self._run, name="holdfast-top", daemon=True)

    def __enter__(self) -> "SnapshotPoller":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._again.set()
        self._thread.join(timeout=2)

    def refresh(self) -> None:
        """At once: something was changed from here."""
        self._again.set()

    def _run(self) -> None:
        while not self._over:
            began = time.monotonic()
            try:
                self.snapshot, self.trouble = self._reader.look(), ""
            except HoldfastError as error:
                self.trouble = f"{error.code}: {error.message}"
            self.looks += 1
            took_s = time.monotonic() - began
            self._again.wait(max(self._every_s, took_s / READING_SHARE_MAX))
            self._again.clear()
