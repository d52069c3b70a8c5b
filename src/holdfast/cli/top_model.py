"""The data of `holdfast top`: snapshots of a ledger, read in a separate thread."""

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
"""The most rows per pane: more than a screen can show, and few enough to be read every second."""
ERROR_CHARACTERS_MAX = 200


class QueueRow(msgspec.Struct, frozen=True):
    name: str
    paused_at: datetime | None
    counts: dict[str, int]
    """The number of jobs of each status."""
    enqueued_per_s: float | None
    """The rate since the previous snapshot; null in the first one."""
    finished_per_s: float | None
    paused_by: str | None = None
    pause_reason: str | None = None
    ready_since: datetime | None = None
    """When the oldest claimable job became available; null if there is none."""


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
    """Failed jobs that are not discarded, oldest first."""
    dead_letters: list[JobRow]
    """Dead letters that are not discarded, oldest first."""


class SnapshotReader:
    """Reads one snapshot after the other. Rates are computed from two successive snapshots."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._before: tuple[datetime, dict[str, dict[str, int]]] | None = None

    def read(self) -> LedgerSnapshot:
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
            enqueued = max(0, sum(counts.values()) - sum(old.values()))
            finished = max(0, _finished(counts) - _finished(old))
            rates = (enqueued / passed_s, finished / passed_s)
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
"""The share of time spent on reading. If reading takes long, the poller reads less often."""


class SnapshotPoller:
    """Reads snapshots in its own thread, the only one that sets `snapshot`, the newest one, and `trouble`, the last error."""

    def __init__(self, ledger: "Ledger", every_s: float) -> None:
        self._reader = SnapshotReader(ledger)
        self._every_s = every_s
        self._again = threading.Event()
        self._over = False
        self.snapshot: LedgerSnapshot | None = None
        self.trouble = ""
        self.reads = 0
        """The number of reads so far. The screen is drawn again when it changes."""
        self._thread = threading.Thread(target=self._run, name="holdfast-top", daemon=True)

    def __enter__(self) -> "SnapshotPoller":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._again.set()
        self._thread.join(timeout=2)

    def refresh(self) -> None:
        """Read a snapshot at once, because the user has changed something."""
        self._again.set()

    def _run(self) -> None:
        while not self._over:
            began = time.monotonic()
            try:
                self.snapshot, self.trouble = self._reader.read(), ""
            except HoldfastError as error:
                self.trouble = f"{error.code}: {error.message}"
            self.reads += 1
            took_s = time.monotonic() - began
            self._again.wait(max(self._every_s, took_s / READING_SHARE_MAX))
            self._again.clear()
