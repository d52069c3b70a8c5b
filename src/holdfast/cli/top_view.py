"""Snapshots of a ledger for `holdfast top`, its panes, and the action of each key. This module uses no terminal."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.cli.job_views import error_text
from holdfast.cli.limit import format_waiting
from holdfast.cli.worker import SILENT, last_seen_text, replaced_workers
from holdfast.core.formatting import RETRIED, is_retry
from holdfast.core.model import TERMINAL, EventType, Status
from holdfast.core.text import format_age
from holdfast.errors import HoldfastError
from holdfast.ledger import LimitUsage, WorkerRecord

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
    limits: list[LimitUsage]


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
            ledger.flow_status().limits[:ROWS_MAX],
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


BAR_CELLS = 10
PROGRESS_MAX = 100
"""Progress is any number that the job chooses. Up to this value it is drawn as a bar too."""


class PaneRow(NamedTuple):
    key: str
    """Identifies the row in all snapshots."""
    cells: tuple[str, ...]
    job_id: int | None = None
    queue: str | None = None
    tone: str = ""
    """good, warn, bad or dim."""


class Pane(NamedTuple):
    name: str
    heads: tuple[str, ...]
    rows: "Callable[[LedgerSnapshot], list[PaneRow]]"


def _queue_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    return [_queue_row(one, snapshot.now) for one in snapshot.queues]


def _queue_row(one: "QueueRow", now: datetime) -> PaneRow:
    counts = one.counts
    numbers = [
        str(counts[status]) for status in ("queued", "claimed", "running", "stalled", "failed", "dead_lettered", "succeeded")
    ]
    state = "open" if one.paused_at is None else "paused"
    oldest = "–" if one.ready_since is None else format_age(now - one.ready_since)
    cells = (one.name, state, oldest, *numbers, _format_rate(one.enqueued_per_s), _format_rate(one.finished_per_s))
    return PaneRow(one.name, cells, queue=one.name, tone="warn" if one.paused_at else "")


def _format_rate(per_s: float | None) -> str:
    return "–" if per_s is None else f"{per_s:,.1f}/s"


def _worker_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    gone = replaced_workers(snapshot.workers)
    return [_worker_row(one, snapshot.now, gone) for one in snapshot.workers]


def _worker_row(one: "WorkerRecord", now: datetime, gone: set[tuple[str, str]]) -> PaneRow:
    details = one.details
    queues = details.get("queues")
    names = ", ".join(map(str, queues)) if isinstance(queues, list) else "–"
    cells = (one.name, last_seen_text(one, now, gone), str(one.holding), names, f"{details.get('host', '–')}")
    return PaneRow(
        f"{one.name} {one.incarnation}",
        cells,
        tone="dim" if (one.name, one.incarnation) in gone else "bad" if now - one.seen_at > SILENT else "",
    )


def _limit_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    return [_limit_row(one, snapshot.now) for one in snapshot.limits]


def _limit_row(one: "LimitUsage", now: "datetime") -> PaneRow:
    concurrent = "–" if one.concurrent is None else f"{one.concurrent:,}"
    oldest = "–" if one.waiting_since is None else format_age(now - one.waiting_since)
    waiting = format_waiting(one.waiting)
    cells = (one.name, f"{one.used:,}", concurrent, one.rate or "–", one.by or "–", str(one.keys), waiting, oldest)
    is_full = one.by is None and one.concurrent is not None and one.used >= one.concurrent
    return PaneRow(one.name, cells, tone="warn" if is_full else "")


def _running_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    rows = []
    for job in snapshot.running:
        last_beat = "–" if job.last_heartbeat_at is None else f"{format_age(snapshot.now - job.last_heartbeat_at)} ago"
        cells = (
            str(job.id),
            job.kind,
            job.queue,
            job.owner or "–",
            str(job.attempt),
            last_beat,
            job.stage or "–",
            progress_bar(job.progress),
        )
        rows.append(_job_row(job, cells))
    return rows


def progress_bar(progress: int | None) -> str:
    if progress is None:
        return "–"
    if not 0 <= progress <= PROGRESS_MAX:
        return str(progress)
    full = round(progress * BAR_CELLS / PROGRESS_MAX)
    return f"{'█' * full}{'░' * (BAR_CELLS - full)} {progress}"


def _stalled_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    rows = []
    for job in snapshot.stalled:
        silent = "–" if job.last_heartbeat_at is None else format_age(snapshot.now - job.last_heartbeat_at)
        why = f"{RETRIED}: {job.error}" if is_retry(EventType.STALLED, job.reason) and job.error else job.reason or "–"
        cells = (str(job.id), job.kind, job.queue, job.owner or "–", str(job.attempt), why, silent)
        rows.append(_job_row(job, cells, "warn"))
    return rows


def _failed_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    return _ended_rows(snapshot.failed, snapshot)


def _dead_letter_rows(snapshot: "LedgerSnapshot") -> list[PaneRow]:
    return _ended_rows(snapshot.dead_letters, snapshot)


def _ended_rows(jobs: "Sequence[JobRow]", snapshot: "LedgerSnapshot") -> list[PaneRow]:
    rows = []
    for job in jobs:
        ago = "–" if job.finished_at is None else format_age(snapshot.now - job.finished_at)
        cells = (str(job.id), job.kind, job.queue, job.reason or "–", str(job.attempt), ago, job.error or "–")
        rows.append(_job_row(job, cells, "bad"))
    return rows


def _job_row(job: "JobRow", cells: tuple[str, ...], tone: str = "") -> PaneRow:
    return PaneRow(str(job.id), cells, job.id, job.queue, tone)


PANES: Sequence[Pane] = (
    Pane(
        "Queues",
        ("queue", "state", "oldest", "queued", "claimed", "running", "stalled", "failed", "dead", "succeeded", "in", "done"),
        _queue_rows,
    ),
    Pane("Workers", ("worker", "seen", "holding", "queues", "host"), _worker_rows),
    Pane("Running", ("job", "kind", "queue", "owner", "attempt", "beat", "stage", "progress"), _running_rows),
    Pane("Stalled", ("job", "kind", "queue", "owner", "attempt", "why", "silent"), _stalled_rows),
    Pane("Failed", ("job", "kind", "queue", "why", "attempts", "age", "error"), _failed_rows),
    Pane("Dead letters", ("job", "kind", "queue", "why", "attempts", "age", "error"), _dead_letter_rows),
    Pane("Limits", ("limit", "used", "concurrent", "rate", "by", "keys in use", "waiting", "oldest"), _limit_rows),
)


def shown_panes(snapshot: "LedgerSnapshot") -> Sequence[Pane]:
    """Return the panes. A ledger without limits has no pane for them."""
    return PANES if snapshot.limits else PANES[:-1]


def filtered_rows(pane: Pane, snapshot: "LedgerSnapshot", wanted: str) -> list[PaneRow]:
    """Return the rows that contain the filter text."""
    wanted = wanted.casefold()
    return [row for row in pane.rows(snapshot) if not wanted or any(wanted in cell.casefold() for cell in row.cells)]


STEPS = {"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -10, "pgdn": 10, "home": -1_000_000, "g": -1_000_000}
STEPS |= {"end": 1_000_000, "G": 1_000_000}
HELP = """\
up, down, k, j   move                 tab, shift-tab   next pane, previous pane
enter            open the marked row  /                show only rows that contain a text
c                cancel the job       r                replay the job
p                pause or unpause the queue
?                this page            q                quit
esc              close, or clear the filter"""


class ViewAction(NamedTuple):
    """An action that the user has chosen: cancel, replay, pause, unpause, open, open_queue or quit."""

    verb: str
    job_id: int = 0
    queue: str = ""


class ViewState:
    def __init__(self) -> None:
        self.pane = 0
        self.marks: dict[int, str] = {}
        """The key of the marked row of each pane. The row stays marked when other rows appear or disappear."""
        self.filter = ""
        self.typing = False
        self.to_confirm: ViewAction | None = None
        """The action that the user is asked to confirm."""
        self.pages: list[str] | None = None
        """The lines of the open page."""
        self.scroll = 0
        self.message = ""
        """The result of the last action."""

    def rows(self, snapshot: LedgerSnapshot, pane: int) -> list[PaneRow]:
        return filtered_rows(PANES[pane], snapshot, self.filter)

    def index(self, rows: list[PaneRow], pane: int) -> int:
        mark = self.marks.get(pane)
        return next((n for n, row in enumerate(rows) if row.key == mark), 0)

    def marked(self, snapshot: LedgerSnapshot) -> PaneRow | None:
        rows = self.rows(snapshot, self.pane)
        return rows[self.index(rows, self.pane)] if rows else None

    def press(self, key: str, snapshot: LedgerSnapshot) -> ViewAction | None:
        """Handle a key. Return the action to perform, or None if only the view has changed."""
        self.message = ""
        if self.to_confirm is not None:
            return self._confirm(key)
        if self.typing:
            self._type(key)
        elif self.pages is not None:
            self._scroll(key)
        else:
            return self._browse(key, snapshot)
        return None

    def _confirm(self, key: str) -> ViewAction | None:
        action, self.to_confirm = self.to_confirm, None
        if key in ("y", "Y"):
            return action
        self.message = "Nothing was done."
        return None

    def _type(self, key: str) -> None:
        if key == "enter":
            self.typing = False
        elif key == "escape":
            self.typing, self.filter = False, ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter += key

    def _scroll(self, key: str) -> None:
        if key in STEPS:
            self.scroll = max(0, min(len(self.pages or ()) - 1, self.scroll + STEPS[key]))
        elif key in ("escape", "q", "enter", "?"):
            self.pages, self.scroll = None, 0

    def open(self, lines: list[str]) -> None:
        self.pages, self.scroll = lines, 0

    def _browse(self, key: str, snapshot: LedgerSnapshot) -> ViewAction | None:
        if key == "q":
            return ViewAction("quit")
        if key in STEPS:
            self._move(STEPS[key], snapshot)
        elif key in ("tab", "backtab"):
            self.pane = (self.pane + (1 if key == "tab" else -1)) % len(shown_panes(snapshot))
        elif key == "/":
            self.typing, self.filter = True, ""
        elif key == "escape":
            self.filter = ""
        elif key == "?":
            self.open(HELP.splitlines())
        else:
            return self._act(key, snapshot)
        return None

    def _move(self, by: int, snapshot: LedgerSnapshot) -> None:
        rows = self.rows(snapshot, self.pane)
        if rows:
            self.marks[self.pane] = rows[max(0, min(len(rows) - 1, self.index(rows, self.pane) + by))].key

    def _act(self, key: str, snapshot: LedgerSnapshot) -> ViewAction | None:
        row = self.marked(snapshot)
        if row is None:
            return None
        if key == "enter" and row.job_id is not None:
            return ViewAction("open", row.job_id)
        if key == "enter" and row.queue is not None:
            return ViewAction("open_queue", queue=row.queue)
        if key == "enter":
            self.open([f"{head}: {cell}" for head, cell in zip(PANES[self.pane].heads, row.cells, strict=True)])
        elif key in ("c", "r") and row.job_id is not None:
            self.to_confirm = ViewAction("cancel" if key == "c" else "replay", row.job_id)
        elif key == "p" and row.queue is not None:
            paused = any(one.paused_at for one in snapshot.queues if one.name == row.queue)
            return ViewAction("unpause" if paused else "pause", queue=row.queue)
        return None

    @property
    def question(self) -> str:
        assert self.to_confirm is not None
        what = "Cancel" if self.to_confirm.verb == "cancel" else "Replay"
        return f"{what} job {self.to_confirm.job_id}? y/n"
